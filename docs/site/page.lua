-- SPDX-License-Identifier: BSD-3-Clause
-- page.lua - the pandoc filter of docs/site/build: links and the menu of one page.
--
-- Documents name each other as a link, as `docs/user/rdma.md` or docs/user/rdma.md in prose, or as
-- `rdma.md` beside it; manual pages as `man braid` or braid(1).  All become links to pages of the site.
-- A link to a document that has no page is an error.

local me = os.getenv("BRAID_SITE_PAGE")
local pages, file_of, groups, title = {}, {}, {}, nil
local root, position = "", 0

for line in io.lines(os.getenv("BRAID_SITE_PAGES")) do
	local group, source, file, name = line:match("^(.-)\t(.-)\t(.-)\t(.*)$")

	table.insert(pages, { group = group, source = source, file = file, name = name })
	file_of[source:match("%.md$") and source or name] = file
	if source == me then
		root = file:gsub("[^/]+", ".."):gsub("%.%.$", "")
		position = #pages
	end
end

local function directory(path)
	return path:match("^(.*/)[^/]*$") or ""
end

-- "docs/user/../results/gpu.md" without "..".
local function tidy(path)
	local n

	repeat
		path, n = path:gsub("[^/]+/%.%./", "", 1)
	until n == 0
	return path
end

-- The page that the text of a document names, relative to this one, or nil.
local function find(name)
	local dirs = { "", directory(me), "docs/user/", "docs/dev/" }

	for _, dir in ipairs(dirs) do
		local file = file_of[tidy(dir .. name)]

		if file then
			return root .. file
		end
	end
	local group = ({ ["docs/user/"] = "for-users", ["docs/dev/"] = "for-developers",
		["docs/decisions/"] = "decisions", ["docs/results/"] = "results" })[name]
	return group and root .. "contents.html#" .. group
end

local function link(el)
	local path, heading = el.target:match("^([^#]*)(.*)$")

	if path == "" or path:match("^%a+:") then
		return el, false
	end
	local file = file_of[tidy(directory(me) .. path)]
	if file then
		el.target = root .. file .. heading
	elseif path:match("%.md$") then
		error(me .. ": " .. path .. " has no page in the site")
	end
	return el, false
end

local function code(el)
	local text = el.text:gsub("^man (braid)$", "%1(1)"):gsub("^man (braid%-params)$", "%1(7)")
	local target = find(text)

	return target and pandoc.Link({ el }, target), false
end

local function word(el)
	local before, path, after = el.text:match("^([^%w]*)(docs/[%w/-]+%.md)(.*)$")

	if not path then
		before, path, after = el.text:match("^([^%w]*)(braid[a-z-]*%(%d%))(.*)$")
	end
	local target = path and find(path)
	if target then
		return { pandoc.Str(before), pandoc.Link({ pandoc.Str(path) }, target), pandoc.Str(after) }, false
	end
end

-- A manual page names others, and files where make install puts them.
local function raw(el)
	if me == "contents" then
		return nil
	end
	local text = el.text:gsub('<a class="Xr"[^>]*>([^<]*)</a>', function(name)
		local file = file_of[name]

		return file and '<a class="Xr" href="' .. root .. file .. '">' .. name .. "</a>" or name
	end):gsub("[^%s<>()\"]*(user/[a-z-]+%.md)", function(name)
		local file = file_of["docs/" .. name]

		return file and '<a href="' .. root .. file .. '">docs/' .. name .. "</a>"
	end)
	return pandoc.RawBlock("html", text)
end

local function html(text)
	return (text:gsub("[&<>\"]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }))
end

-- The entries of this page on the page of all headings: each heading, and the text below it to search.
local function headings(doc)
	local page, out, words, heading = pages[position], {}, {}, nil

	local function flush()
		if heading then
			local target = page.file .. (heading.level > 1 and "#" .. heading.identifier or "")

			table.insert(out, ('<li class="h%d" data-text="%s"><a href="%s">%s</a></li>'):format(
				heading.level, html(table.concat(words, " "):gsub("%s+", " ")), target,
				html(pandoc.utils.stringify(heading))))
		end
		words = {}
	end
	for _, block in ipairs(doc.blocks) do
		if block.t == "Header" then
			flush()
			heading = block
		elseif block.t == "RawBlock" then
			-- Each section and variable of a manual page has a name to link to.
			flush()
			heading = nil
			for tag, id in block.text:gmatch('<([hd][12t])[^>]* id="([^"]+)"') do
				if tag ~= "dt" or id:match("^[A-Z]+_") then
					local name = tag == "dt" and id or id:gsub("_", " ")

					table.insert(out, ('<li class="h2" data-text=""><a href="%s#%s">%s</a></li>'):format(
						page.file, id, name))
				end
			end
		else
			local inlines = pandoc.utils.blocks_to_inlines({ block })

			table.insert(words, pandoc.utils.stringify(pandoc.Span(inlines)))
		end
	end
	flush()

	local first = position == 1 or pages[position - 1].group ~= page.group
	local last = position == #pages or pages[position + 1].group ~= page.group
	local id = page.group:lower():gsub(" ", "-")
	local name = ("%sheadings.%03d"):format(directory(os.getenv("BRAID_SITE_PAGES")), position)
	local f = assert(io.open(name, "w"))
	f:write(first and ('<h2 id="%s">%s</h2>\n<ul class="all">\n'):format(id, page.group) or "",
		table.concat(out, "\n"), last and "\n</ul>\n" or "\n")
	f:close()
end

local function menu(doc)
	local list = pandoc.List()

	for i, page in ipairs(pages) do
		local group = list[#list]

		if not group or group.name ~= page.group then
			group = { name = page.group, pages = pandoc.List(), open = i <= 2 and "1" or nil }
			list:insert(group)
		end
		if i == position then
			group.open = "1"
		end
		group.pages:insert({ href = root .. page.file, title = page.name, here = i == position })
	end
	doc.meta.menu = list
	doc.meta.root = root
	doc.meta.source = me
	for _, block in ipairs(doc.blocks) do
		if block.t == "Header" and block.level == 1 then
			doc.meta.pagetitle = pandoc.utils.stringify(block)
			break
		end
	end
	if position > 0 then
		headings(doc)
	end
	return doc
end

return {
	{ Pandoc = menu },
	{ traverse = "topdown", Header = function(el) return el, false end, Link = link, Code = code, Str = word, RawBlock = raw },
}
