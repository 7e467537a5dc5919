/* The loop over tiles: codes from global memory, decoded once a block into shared memory, steps of a unit in registers.
 *
 * A block of threads has COLUMN_TILE columns of C, Unit::ROWS rows for each of its Unit::WARPS warps, and all of K. A
 * warp has all columns: its threads read one element of A together. A thread has Unit::ROWS rows and COLUMNS columns: two
 * neighbours, and two neighbours half a tile further, so that threads read shared memory side by side.
 *
 * It knows no unit. A unit says what stands in shared memory and what a step does with it:
 *   Element, HAS_EXPONENTS  what an element of A or B is; whether exponents stand beside it
 *   PACKED                  how many elements along K, as bytes (`byte_of`), are one Element
 *   HAS_BLOCKS              whether blocks' scales stand there, which elements have not in them
 *   HAS_SIGNS               whether magnitudes stand there, and signs beside them
 *   MODULUS, RUN            of such a unit: a step's places of K are summed in parts, of RUN in each MODULUS places
 *   HAS_LOWEST              whether the least exponents of lines stand there
 *   DEPTH, STAGES           elements of K at a time, whole steps; how many such lie in shared memory, at most 2
 *   MARKS_SPECIALS          whether lines with infinities and NaNs are not for it
 *   load, step, store       of the thread's sums
 *
 * What a unit cannot take (infinities, NaNs, results out of range) is marked, not written: scalar.cuh computes it.
 */
#pragma once
#include "numbers.cuh"

enum { COLUMN_TILE = 128, COLUMNS = 4, WARP = 32, ALIGNMENT = 16, LINE_PAD = 16 };     /* bytes */

struct Arguments {
    const char *a, *b, *c;                  /* c: NULL, or codes of C_FORMAT */
    char *out;
    long long a_row, a_column, b_row, b_column, c_row, c_column;    /* strides in bytes */
    long long a_matrix, b_matrix, c_matrix, out_matrix;             /* of the matrices of a stack */
    const char *a_scale, *b_scale;
    long long a_scale_row, a_scale_column, b_scale_row, b_scale_column, a_scale_matrix, b_scale_matrix;
    const uint8_t *divide;                  /* for each step; NULL: nobody is */
    uint32_t *marks;                        /* a bit for each element of C, and before them whether one is set */
    int m, n, k;
};

/* Elements of A and B over DEPTH of K. */
template <class Unit> struct Tile {
    enum {
        ROWS = Unit::ROWS * Unit::WARPS, THREADS = Unit::WARPS * WARP,
        PAD = ALIGNMENT / sizeof(typename Unit::Element)    /* beside a line: other banks, and vectors stay aligned */
    };
    static_assert(ROWS <= COLUMN_TILE && Unit::ROWS % 4 == 0 && Unit::ROWS * COLUMNS <= 64, "flags, vectors, marks");
    static_assert(Unit::DEPTH % Unit::TERMS == 0 && Unit::DEPTH % Unit::PACKED == 0, "whole steps");
    static_assert(Unit::DEPTH * COLUMN_TILE <= 32 * THREADS || !Unit::HAS_SIGNS, "changes of signs are bits of a word");
};

template <class Unit> struct __align__(ALIGNMENT) Stage {
    typename Unit::Element a[Unit::DEPTH / Unit::PACKED][Tile<Unit>::ROWS + Tile<Unit>::PAD];
    typename Unit::Element b[Unit::DEPTH / Unit::PACKED][COLUMN_TILE + Tile<Unit>::PAD];
};

struct Nothing {};
template <bool HAS, class Kind> struct If { typedef Nothing Type; };
template <class Kind> struct If<true, Kind> { typedef Kind Type; };
template <int ROWS, int DEPTH> struct __align__(ALIGNMENT) Exponents {
    uint32_t a[DEPTH][ROWS + LINE_PAD / 4];     /* twice the same 16 bits */
    uint16_t b[DEPTH][COLUMN_TILE + LINE_PAD / 2];
};
template <class Unit> using ExponentsOf = typename If<Unit::HAS_EXPONENTS, Exponents<Tile<Unit>::ROWS, Unit::DEPTH>>::Type;

/* Place t of a part of a step, and how far before a place of K the part's last one lies; 0: there is none. */
template <class Unit> __device__ __forceinline__ constexpr int place_of(int part, int t)
{
    return t / Unit::RUN * Unit::MODULUS + part * Unit::RUN + t % Unit::RUN;
}
template <class Unit> __device__ __forceinline__ constexpr int distance_before(int place)
{
    return place % Unit::RUN ? 1 : place >= Unit::MODULUS ? Unit::MODULUS - Unit::RUN + 1 : 0;
}

/* Where the sign of a line changes within a part of a step: SIGN_WORD or 0. A part begins with plus. */
template <int ROWS, int DEPTH> struct __align__(ALIGNMENT) Signs {
    uint32_t a[DEPTH][ROWS + LINE_PAD / 4], b[DEPTH][COLUMN_TILE + LINE_PAD / 4];
};
template <class Unit> using SignsOf = typename If<Unit::HAS_SIGNS, Signs<Tile<Unit>::ROWS, Unit::DEPTH>>::Type;

/* Scales of blocks, in units of products of packed elements, and their exponents; NO_TERM: of zero. */
template <int ROWS, int BLOCKS> struct Blocks {
    double a[BLOCKS][ROWS], b[BLOCKS][COLUMN_TILE];
    int of_a[BLOCKS][ROWS], of_b[BLOCKS][COLUMN_TILE];
};
template <class Unit> using BlocksOf = typename If<Unit::HAS_BLOCKS, Blocks<Tile<Unit>::ROWS, Unit::DEPTH / SCALE_BLOCK>>::Type;

template <class Unit> struct __align__(ALIGNMENT) Shared {
    Stage<Unit> stage;
    ExponentsOf<Unit> exponents;
    SignsOf<Unit> signs;
    BlocksOf<Unit> blocks;
    int lowest_a[Tile<Unit>::ROWS], lowest_b[COLUMN_TILE];      /* least exponents, for units that ask */
    uint8_t special_row[Tile<Unit>::ROWS], special_column[COLUMN_TILE];
};

__device__ __forceinline__ int column_of(int lane, int j) { return 2 * lane + (j & 1) + (j >> 1) * (COLUMN_TILE / 2); }

/* Codes as they wait in registers. */
template <int BITS> struct Code { typedef uint32_t Type; };
template <> struct Code<64> { typedef uint64_t Type; };

template <class Unit> struct Loader {
    enum {
        THREADS = Tile<Unit>::THREADS, ROWS = Tile<Unit>::ROWS,
        OF_A = (ROWS * Unit::DEPTH + THREADS - 1) / THREADS, OF_B = (COLUMN_TILE * Unit::DEPTH + THREADS - 1) / THREADS
    };
    typename Code<A_FORMAT.storage_bits>::Type a[OF_A];
    typename Code<B_FORMAT.storage_bits>::Type b[OF_B];
    uint32_t a_changes, b_changes;      /* a bit for each element: whether the sign before it is another */
#if HAS_SCALES
    uint8_t a_scale[OF_A], b_scale[OF_B];       /* unused where blocks' scales stand apart */
#endif

    /* Element i of this thread: its line and its place in K; neighbours in memory are neighbours in a warp. */
    template <int LINES> __device__ __forceinline__ static bool place(int i, bool by_k, int *line, int *k)
    {
        const int e = (int)threadIdx.x + i * THREADS;
        *line = by_k ? e / Unit::DEPTH : e % LINES;
        *k = by_k ? e % Unit::DEPTH : e / LINES;
        return LINES * Unit::DEPTH % THREADS == 0 || e < LINES * Unit::DEPTH;
    }

    __device__ __forceinline__ void fetch(const Arguments &g, const char *a_from, const char *b_from, int row, int column,
                                          int k0, bool a_by_k, bool b_by_k)
    {
        int line, k;
        a_changes = b_changes = 0;
#pragma unroll
        for (int i = 0; i < OF_A; i++) {
            const bool is_there = place<ROWS>(i, a_by_k, &line, &k) && row + line < g.m && k0 + k < g.k;
            const char *from = a_from + (row + line) * g.a_row + (k0 + k) * g.a_column;
            a[i] = is_there ? load_code<A_FORMAT.storage_bits>(from) : 0;
            if constexpr (Unit::HAS_SIGNS)
                if (const int back = distance_before<Unit>(k % Unit::TERMS); back && row + line < g.m && k0 + k - back < g.k)
                    a_changes |= (uint32_t)sign_of(A_FORMAT, load_code<A_FORMAT.storage_bits>(from - back * g.a_column)) << i;
#if HAS_SCALES
            if constexpr (!Unit::HAS_BLOCKS)
                a_scale[i] = is_there ? *scale_of_a(g, row + line, k0 + k) : SPEC.scale.bias;
#endif
        }
#pragma unroll
        for (int i = 0; i < OF_B; i++) {
            const bool is_there = place<COLUMN_TILE>(i, b_by_k, &line, &k) && column + line < g.n && k0 + k < g.k;
            const char *from = b_from + (column + line) * g.b_column + (k0 + k) * g.b_row;
            b[i] = is_there ? load_code<B_FORMAT.storage_bits>(from) : 0;
            if constexpr (Unit::HAS_SIGNS)
                if (const int back = distance_before<Unit>(k % Unit::TERMS); back && column + line < g.n && k0 + k - back < g.k)
                    b_changes |= (uint32_t)sign_of(B_FORMAT, load_code<B_FORMAT.storage_bits>(from - back * g.b_row)) << i;
#if HAS_SCALES
            if constexpr (!Unit::HAS_BLOCKS)
                b_scale[i] = is_there ? *scale_of_b(g, column + line, k0 + k) : SPEC.scale.bias;
#endif
        }
    }

#if HAS_SCALES
    __device__ __forceinline__ static const uint8_t *scale_of_a(const Arguments &g, int row, int k)
    {
        return (const uint8_t *)g.a_scale + blockIdx.z * g.a_scale_matrix + row * g.a_scale_row + k / SCALE_BLOCK * g.a_scale_column;
    }

    __device__ __forceinline__ static const uint8_t *scale_of_b(const Arguments &g, int column, int k)
    {
        return (const uint8_t *)g.b_scale + blockIdx.z * g.b_scale_matrix + column * g.b_scale_column + k / SCALE_BLOCK * g.b_scale_row;
    }

    /* The scales of blocks that stand apart. */
    __device__ __forceinline__ static void put_blocks(Shared<Unit> &shared, const Arguments &g, int row, int column, int k0)
    {
#pragma unroll 1
        for (int e = (int)threadIdx.x; e < (ROWS + COLUMN_TILE) * (Unit::DEPTH / SCALE_BLOCK); e += THREADS) {
            const int line = e % (ROWS + COLUMN_TILE) - ROWS, block = e / (ROWS + COLUMN_TILE), k = k0 + block * SCALE_BLOCK;
            const bool is_there = k < g.k && (line < 0 ? row + ROWS + line < g.m : column + line < g.n);
            const uint8_t *from = line < 0 ? scale_of_a(g, row + ROWS + line, k) : scale_of_b(g, column + line, k);
            const Number scale = is_there ? Unit::read_scale(*from) : Number{0, NO_EXPONENT, false};
            const int exponent = scale.exponent == NO_EXPONENT ? NO_TERM : scale.exponent;
            (line < 0 ? shared.blocks.a[block][ROWS + line] : shared.blocks.b[block][line]) = scale.value;
            (line < 0 ? shared.blocks.of_a[block][ROWS + line] : shared.blocks.of_b[block][line]) = exponent;
            if (scale.is_special)
                (line < 0 ? shared.special_row[ROWS + line] : shared.special_column[line]) = 1;
        }
    }
#endif

    __device__ __forceinline__ void put(Shared<Unit> &shared, const Arguments &g, int row, int column, int k0, bool a_by_k, bool b_by_k)
    {
#if HAS_SCALES
        if constexpr (Unit::HAS_BLOCKS)
            put_blocks(shared, g, row, column, k0);
#endif
        int line, k;
#pragma unroll
        for (int i = 0; i < OF_A; i++)
            if (place<ROWS>(i, a_by_k, &line, &k)) {
                if constexpr (Unit::PACKED > 1) {
                    ((int8_t *)&shared.stage.a[k / Unit::PACKED][line])[k % Unit::PACKED] = Unit::byte_of(A_FORMAT, a[i]);
                    continue;
                }
                Number x = Unit::read(A_FORMAT, a[i]);
#if HAS_SCALES
                x = scaled(x, a_scale[i]);
#endif
                if (x.is_special)
                    shared.special_row[line] = 1;
                if constexpr (Unit::HAS_SIGNS) {
                    const bool changes = sign_of(A_FORMAT, a[i]) != (bool)(a_changes >> i & 1);
                    shared.signs.a[k][line] = changes ? SIGN_WORD : 0;
                    shared.stage.a[k][line] = fabs(x.value);
                } else
                    shared.stage.a[k][line] = (typename Unit::Element)x.value;
                if constexpr (Unit::HAS_EXPONENTS) {
                    const uint32_t word = (uint16_t)(x.exponent == NO_EXPONENT ? NO_TERM : x.exponent + BIAS);
                    shared.exponents.a[k][line] = word | word << 16;
                }
                if (Unit::HAS_LOWEST && x.exponent != NO_EXPONENT)
                    atomicMin(&shared.lowest_a[line], x.exponent);
            }
#pragma unroll
        for (int i = 0; i < OF_B; i++)
            if (place<COLUMN_TILE>(i, b_by_k, &line, &k)) {
                if constexpr (Unit::PACKED > 1) {
                    ((int8_t *)&shared.stage.b[k / Unit::PACKED][line])[k % Unit::PACKED] = Unit::byte_of(B_FORMAT, b[i]);
                    continue;
                }
                Number x = Unit::read(B_FORMAT, b[i]);
#if HAS_SCALES
                x = scaled(x, b_scale[i]);
#endif
                if (x.is_special)
                    shared.special_column[line] = 1;
                if constexpr (Unit::HAS_SIGNS) {
                    const bool changes = sign_of(B_FORMAT, b[i]) != (bool)(b_changes >> i & 1);
                    shared.signs.b[k][line] = changes ? SIGN_WORD : 0;
                    shared.stage.b[k][line] = fabs(x.value);
                } else
                    shared.stage.b[k][line] = (typename Unit::Element)x.value;
                if constexpr (Unit::HAS_EXPONENTS)
                    shared.exponents.b[k][line] = (uint16_t)(x.exponent == NO_EXPONENT ? NO_TERM : x.exponent);
                if (Unit::HAS_LOWEST && x.exponent != NO_EXPONENT)
                    atomicMin(&shared.lowest_b[line], x.exponent);
            }
    }
};

/* The largest exponents of a step's products, biased, for the thread's elements: two columns in a word. */
template <class Unit, int TERMS, int PART = 0>
__device__ __forceinline__ void largest_exponents(const ExponentsOf<Unit> &exponents, int k, int row, int lane, uint32_t floor,
                                         uint32_t (&top)[Unit::ROWS][COLUMNS / 2])
{
#pragma unroll
    for (int i = 0; i < Unit::ROWS; i++)
        top[i][0] = top[i][1] = floor | floor << 16;
#pragma unroll 4
    for (int t = 0; t < TERMS; t++) {
        const int at = k + place_of<Unit>(PART, t);
        const uint32_t *column = (const uint32_t *)exponents.b[at];
        const uint32_t first = column[lane], second = column[lane + WARP];
#pragma unroll
        for (int i = 0; i < Unit::ROWS; i += 4) {
            const uint4 four = *(const uint4 *)&exponents.a[at][row + i];
            const uint32_t of_row[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int r = 0; r < 4; r++) {
                top[i + r][0] = __viaddmax_s16x2(of_row[r], first, top[i + r][0]);
                top[i + r][1] = __viaddmax_s16x2(of_row[r], second, top[i + r][1]);
            }
        }
    }
}

/* Products of a part of a step, each cut toward zero at the last place of its sum. A sum is larger than they are. It has the sign
 * of the product that is added, which is positive itself: rounding down then cuts both toward zero. Its sign means
 * nothing afterwards.
 */
template <class Unit, int TERMS, int PART = 0>
__device__ __forceinline__ void add_cut_products(const Shared<Unit> &shared, int k, int row, int lane,
                                                 double (&sum)[Unit::ROWS][COLUMNS])
{
#pragma unroll Unit::AT_ONCE
    for (int t = 0; t < TERMS; t++) {
        const int at = k + place_of<Unit>(PART, t);
        const double2 near = *(const double2 *)&shared.stage.b[at][2 * lane];
        const double2 far = *(const double2 *)&shared.stage.b[at][COLUMN_TILE / 2 + 2 * lane];
        const uint2 near_signs = *(const uint2 *)&shared.signs.b[at][2 * lane];
        const uint2 far_signs = *(const uint2 *)&shared.signs.b[at][COLUMN_TILE / 2 + 2 * lane];
        const double column[COLUMNS] = {near.x, near.y, far.x, far.y};
        const uint32_t of_column[COLUMNS] = {near_signs.x, near_signs.y, far_signs.x, far_signs.y};
#pragma unroll
        for (int i = 0; i < Unit::ROWS; i += 4) {
            const uint4 four = *(const uint4 *)&shared.signs.a[at][row + i];
            const double2 first = *(const double2 *)&shared.stage.a[at][row + i];
            const double2 second = *(const double2 *)&shared.stage.a[at][row + i + 2];
            const uint32_t of_row[4] = {four.x, four.y, four.z, four.w};
            const double a[4] = {first.x, first.y, second.x, second.y};
#pragma unroll
            for (int r = 0; r < 4; r++)
#pragma unroll
                for (int j = 0; j < COLUMNS; j++)
                    sum[i + r][j] = __fma_rd(a[r], column[j], with_sign_changed(sum[i + r][j], of_row[r] ^ of_column[j]));
        }
    }
}

/* The larger ones of two pairs of exponents. */
__device__ __forceinline__ uint32_t larger_halves(uint32_t x, uint32_t y) { return __viaddmax_s16x2(x, 0, y); }

/* The exponent, as the high word of a double has it, of column j. */
__device__ __forceinline__ uint32_t top_word(const uint32_t (&top)[COLUMNS / 2], int j)
{
    return j & 1 ? (top[j >> 1] & 0xffff0000u) << (EXPONENT_SHIFT - 16) : top[j >> 1] << EXPONENT_SHIFT;
}

/* The sums of a thread, and which of them are marked. */
struct Marks {
    uint64_t bits;
    __device__ __forceinline__ void set(int i, int j) { bits |= 1ull << (i * COLUMNS + j); }
};

template <class Unit> __device__ __forceinline__ void clear_lowest(Shared<Unit> &shared)
{
    for (int i = threadIdx.x; i < COLUMN_TILE; i += blockDim.x) {
        shared.lowest_b[i] = 1 << 20;
        if (i < Tile<Unit>::ROWS)
            shared.lowest_a[i] = 1 << 20;
    }
}

template <class Unit> __device__ void run_tiles(const Arguments &g)
{
    extern __shared__ __align__(16) char room[];
    Shared<Unit> *shared = (Shared<Unit> *)room;    /* Unit::STAGES of them, in turn */
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, row = warp * Unit::ROWS;
    const int first_row = (int)blockIdx.y * Tile<Unit>::ROWS, first_column = (int)blockIdx.x * COLUMN_TILE;
    const char *a = g.a + blockIdx.z * g.a_matrix, *b = g.b + blockIdx.z * g.b_matrix;
    const char *c = g.c ? g.c + blockIdx.z * g.c_matrix : 0;
    char *out = g.out + blockIdx.z * g.out_matrix;
    const bool a_by_k = g.a_column <= g.a_row, b_by_k = g.b_row <= g.b_column;

    Shared<Unit> &last = shared[Unit::STAGES - 1];
    for (int i = threadIdx.x; i < COLUMN_TILE; i += blockDim.x) {
        shared[0].special_column[i] = last.special_column[i] = 0;
        if (i < Tile<Unit>::ROWS)
            shared[0].special_row[i] = last.special_row[i] = 0;
    }
    clear_lowest(shared[0]);
    Unit unit;
    Marks marks = {0};
#pragma unroll
    for (int i = 0; i < Unit::ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            const int y = first_row + row + i, x = first_column + column_of(lane, j);
            const bool is_there = c && y < g.m && x < g.n;
            const uint64_t code = is_there ? load_code<C_FORMAT.storage_bits>(c + y * g.c_row + x * g.c_column) : 0;
            if (!unit.load(i, j, read_number(C_FORMAT, code), code))
                marks.set(i, j);
        }
    Loader<Unit> loader;
    loader.fetch(g, a, b, first_row, first_column, 0, a_by_k, b_by_k);
    __syncthreads();
    int turn = 0, step = 0;
    const int depth = g.k > 0 ? g.k : 1;            /* K = 0 is one step of zeros */
#pragma unroll 1
    for (int k0 = 0; k0 < depth; k0 += Unit::DEPTH, turn = (turn + 1) % Unit::STAGES) {
        /* Of two stages, nobody reads this one any more: all have met since. */
        if (Unit::STAGES == 1 && k0)
            __syncthreads();
        if (Unit::HAS_LOWEST && k0) {
            clear_lowest(shared[turn]);
            __syncthreads();
        }
        loader.put(shared[turn], g, first_row, first_column, k0, a_by_k, b_by_k);
        __syncthreads();
        if (k0 + Unit::DEPTH < depth)
            loader.fetch(g, a, b, first_row, first_column, k0 + Unit::DEPTH, a_by_k, b_by_k);
        for (int k = 0; k < Unit::DEPTH && k0 + k < depth; k += Unit::TERMS, step++)
            unit.step(shared[turn], k, row, lane, step, g.divide, marks);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < Unit::ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            const int line = row + i, place = column_of(lane, j), y = first_row + line, x = first_column + place;
            if (y >= g.m || x >= g.n)
                continue;
            const bool is_special = shared[0].special_row[line] | last.special_row[line]
                | shared[0].special_column[place] | last.special_column[place];
            uint64_t code = 0;
            if (!unit.store(i, j, &code) || marks.bits >> (i * COLUMNS + j) & 1 || (Unit::MARKS_SPECIALS && is_special)) {
                const long long at = ((long long)blockIdx.z * g.m + y) * g.n + x;
                atomicOr(&g.marks[1 + at / 32], 1u << (at % 32));
                g.marks[0] = 1;     /* whoever writes it last */
            } else
                store_code<D_FORMAT.storage_bits>(out + ((long long)y * g.n + x) * (D_FORMAT.storage_bits / 8), code);
        }
}
