/* SPDX-License-Identifier: BSD-3-Clause */
/* reduce.c - what NCCL's kernels do to elements of its twelve types: see gpu.h. */
#include "tests/nccl/gpu.h"

#include <math.h>
#include <string.h>

enum { SUM, PROD, MIN_MAX, PRE_MUL_SUM, SUM_POST_DIV };
enum { I8, U8, I32, U32, I64, U64, F16, F32, F64, BF16, E4M3, E5M2 };

size_t type_size(unsigned type)
{
	static const size_t sizes[TYPES] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

	return sizes[type];
}

/* -- floating point of 8 and 16 bits -------------------------------------------------------------- */

struct small {
	int exponent, mantissa;		/* bits */
	double largest;
	bool infinite;			/* the highest exponent is infinity and NaN; if not, NaN is all ones */
};

static const struct small *small_of(unsigned type)
{
	static const struct small half = { 5, 10, 65504, true }, bfloat = { 8, 7, 3.3895313892515355e38, true },
		e4m3 = { 4, 3, 448, false }, e5m2 = { 5, 2, 57344, true };

	switch (type) {
	case F16: return &half;
	case BF16: return &bfloat;
	case E4M3: return &e4m3;
	case E5M2: return &e5m2;
	default: return NULL;
	}
}

static float small_get(const struct small *s, unsigned bits)
{
	int bias = (1 << (s->exponent - 1)) - 1, top = (1 << s->exponent) - 1;
	unsigned mantissa = bits & ((1U << s->mantissa) - 1);
	int exponent = (int)(bits >> s->mantissa) & top;
	float v;

	if (s->infinite && exponent == top)
		v = mantissa ? NAN : INFINITY;
	else if (!s->infinite && exponent == top && mantissa == (1U << s->mantissa) - 1)
		v = NAN;
	else if (!exponent)
		v = ldexpf((float)mantissa, 1 - bias - s->mantissa);
	else
		v = ldexpf((float)(mantissa | 1U << s->mantissa), exponent - bias - s->mantissa);
	return bits >> (s->exponent + s->mantissa) & 1 ? -v : v;
}

/* Rounds to nearest, ties to even.  Too large: infinity or, without infinity, the largest number. */
static unsigned small_set(const struct small *s, float v)
{
	int bias = (1 << (s->exponent - 1)) - 1, top = (1 << s->exponent) - 1, exponent;
	unsigned sign = (unsigned)(signbit(v) != 0) << (s->exponent + s->mantissa);
	unsigned bits;

	v = fabsf(v);
	if (isnan(v))
		return sign | (unsigned)top << s->mantissa | ((1U << s->mantissa) - 1);
	if (v == 0)
		return sign;
	exponent = isinf(v) ? top : ilogbf(v);
	if (exponent < 1 - bias)
		exponent = 1 - bias;
	bits = (unsigned)lrintf(ldexpf(v, s->mantissa - exponent));	/* with the leading one */
	bits += (unsigned)(exponent + bias - 1) << s->mantissa;
	if (!isinf(v) && (double)small_get(s, bits) <= s->largest)
		return sign | bits;
	bits = (unsigned)top << s->mantissa;
	return sign | (s->infinite ? bits : bits | ((1U << s->mantissa) - 2));
}

static unsigned small_load(unsigned type, const void *at, size_t i)
{
	return type_size(type) == 2 ? ((const uint16_t *)at)[i] : ((const uint8_t *)at)[i];
}

static void small_store(unsigned type, void *at, size_t i, unsigned bits)
{
	if (type_size(type) == 2)
		((uint16_t *)at)[i] = (uint16_t)bits;
	else
		((uint8_t *)at)[i] = (uint8_t)bits;
}

/* -- two operands ---------------------------------------------------------------------------------- */

static float combine(const struct reduction *r, float a, float b)
{
	switch (r->op) {
	case PROD: return a * b;
	case MIN_MAX: return r->arg & 1 ? fmaxf(a, b) : fminf(a, b);
	default: return a + b;
	}
}

static void two_small(const struct reduction *r, void *to, const void *a, const void *b, size_t n)
{
	const struct small *s = small_of(r->type);

	for (size_t i = 0; i < n; i++) {
		float x = small_get(s, small_load(r->type, a, i)), y = small_get(s, small_load(r->type, b, i));

		small_store(r->type, to, i, small_set(s, combine(r, x, y)));
	}
}

/* Signed integers are added as unsigned ones; min and max bring a mask to compare them. */
#define TWO_INTS(T, r, to, a, b, n) do { \
	T *t_ = (to); \
	const T *a_ = (a), *b_ = (b), x_ = (T)(r)->arg; \
	if ((r)->op == PROD) { \
		for (size_t i = 0; i < (n); i++) \
			t_[i] = (T)(a_[i] * b_[i]); \
	} else if ((r)->op == MIN_MAX) { \
		for (size_t i = 0; i < (n); i++) \
			t_[i] = (a_[i] ^ x_) < (b_[i] ^ x_) ? a_[i] : b_[i]; \
	} else { \
		for (size_t i = 0; i < (n); i++) \
			t_[i] = (T)(a_[i] + b_[i]); \
	} \
} while (0)

#define TWO_FLOATS(T, r, to, a, b, n, MIN, MAX) do { \
	T *t_ = (to); \
	const T *a_ = (a), *b_ = (b); \
	if ((r)->op == PROD) { \
		for (size_t i = 0; i < (n); i++) \
			t_[i] = a_[i] * b_[i]; \
	} else if ((r)->op == MIN_MAX) { \
		for (size_t i = 0; i < (n); i++) \
			t_[i] = (r)->arg & 1 ? MAX(a_[i], b_[i]) : MIN(a_[i], b_[i]); \
	} else { \
		for (size_t i = 0; i < (n); i++) \
			t_[i] = a_[i] + b_[i]; \
	} \
} while (0)

void reduce_two(const struct reduction *r, void *to, const void *a, const void *b, size_t n)
{
	switch (r->type) {
	case I8:
	case U8:
		TWO_INTS(uint8_t, r, to, a, b, n);
		break;
	case I32:
	case U32:
		TWO_INTS(uint32_t, r, to, a, b, n);
		break;
	case I64:
	case U64:
		TWO_INTS(uint64_t, r, to, a, b, n);
		break;
	case F32:
		TWO_FLOATS(float, r, to, a, b, n, fminf, fmaxf);
		break;
	case F64:
		TWO_FLOATS(double, r, to, a, b, n, fmin, fmax);
		break;
	default:
		two_small(r, to, a, b, n);
	}
}

/* -- one operand ----------------------------------------------------------------------------------- */

#define SCALE(T, r, to, from, n) do { \
	T *t_ = (to), k_; \
	const T *f_ = (from); \
	memcpy(&k_, &(r)->arg, sizeof(k_)); \
	for (size_t i = 0; i < (n); i++) \
		t_[i] = (T)(f_[i] * k_); \
} while (0)

static void scale_small(const struct reduction *r, void *to, const void *from, size_t n)
{
	const struct small *s = small_of(r->type);
	float k = small_get(s, small_load(r->type, &r->arg, 0));

	for (size_t i = 0; i < n; i++)
		small_store(r->type, to, i, small_set(s, k * small_get(s, small_load(r->type, from, i))));
}

void reduce_first(const struct reduction *r, void *to, const void *from, size_t n)
{
	if (r->op != PRE_MUL_SUM) {
		if (to != from)
			memmove(to, from, n * type_size(r->type));
		return;
	}
	switch (r->type) {
	case I8:
	case U8:
		SCALE(uint8_t, r, to, from, n);
		break;
	case I32:
	case U32:
		SCALE(uint32_t, r, to, from, n);
		break;
	case I64:
	case U64:
		SCALE(uint64_t, r, to, from, n);
		break;
	case F32:
		SCALE(float, r, to, from, n);
		break;
	case F64:
		SCALE(double, r, to, from, n);
		break;
	default:
		scale_small(r, to, from, n);
	}
}

#define DIVIDE(U, S, r, to, n) do { \
	uint64_t by_ = (r)->arg >> 1; \
	for (size_t i = 0; i < (n); i++) { \
		if ((r)->arg & 1) \
			((S *)(to))[i] = (S)(((S *)(to))[i] / (S)by_); \
		else \
			((U *)(to))[i] = (U)(((U *)(to))[i] / (U)by_); \
	} \
} while (0)

void reduce_last(const struct reduction *r, void *to, size_t n)
{
	if (r->op != SUM_POST_DIV)
		return;
	switch (type_size(r->type)) {
	case 1:
		DIVIDE(uint8_t, int8_t, r, to, n);
		break;
	case 4:
		DIVIDE(uint32_t, int32_t, r, to, n);
		break;
	default:
		DIVIDE(uint64_t, int64_t, r, to, n);
	}
}

/* -- numbers, for tests ---------------------------------------------------------------------------- */

double type_get(unsigned type, const void *at)
{
	switch (type) {
	case I8: return *(const int8_t *)at;
	case U8: return *(const uint8_t *)at;
	case I32: return *(const int32_t *)at;
	case U32: return *(const uint32_t *)at;
	case I64: return (double)*(const int64_t *)at;
	case U64: return (double)*(const uint64_t *)at;
	case F32: return (double)*(const float *)at;
	case F64: return *(const double *)at;
	default: return (double)small_get(small_of(type), small_load(type, at, 0));
	}
}

void type_set(unsigned type, void *at, double value)
{
	switch (type) {
	case I8: *(int8_t *)at = (int8_t)value; break;
	case U8: *(uint8_t *)at = (uint8_t)value; break;
	case I32: *(int32_t *)at = (int32_t)value; break;
	case U32: *(uint32_t *)at = (uint32_t)value; break;
	case I64: *(int64_t *)at = (int64_t)value; break;
	case U64: *(uint64_t *)at = (uint64_t)value; break;
	case F32: *(float *)at = (float)value; break;
	case F64: *(double *)at = value; break;
	default: small_store(type, at, 0, small_set(small_of(type), (float)value));
	}
}
