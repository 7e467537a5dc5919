/* Matrix products of a program, taken before its own BLAS does and sent to a simulated device.
 *
 * Loaded by LD_PRELOAD (`hwsim blas -- program`). gemm, gemv, dot, syrk and herk of s, d, c, z under the names of
 * Fortran, CBLAS and OpenBLAS, with 32- and 64-bit integers, become one request: a header, then the matrices without
 * gaps, over the Unix socket that HWSIM_BLAS_SOCKET names; the answer is the result. The server agrees to a header
 * before the matrices are sent. The program's own routine is called for empty matrices, where the server refuses, and
 * where the environment has no HWSIM_BLAS_SOCKET. Where the socket cannot be reached, the connection breaks, or memory
 * is short, one line on standard error says so and the program ends with exit code 3: its own BLAS would give other
 * bits. Knows BLAS's conventions; computes nothing. */
#define _GNU_SOURCE
#include <complex.h>
#include <dlfcn.h>
#include <errno.h>
#include <fenv.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ROW_MAJOR 101
enum { FULL, UPPER, LOWER };
#define CANNOT_GO_ON 3 /* exit code */
/* Of the server. A result follows DONE, and its flags: OVERFLOWED, INVALID or both. */
enum { DONE, REFUSED = 2, OVERFLOWED = 4, INVALID = 8 };

/* One request; hwsim/frameworks/blas/server.py has the same layout. */
typedef struct {
    char magic[8];
    char routine[8];
    char type, trans_a, trans_b, row_major;
    int32_t has_c;
    int64_t m, n, k;
    double alpha[2], beta[2];
} request;

typedef struct {
    const void *data;
    int64_t rows, cols, ld; /* as stored: rows and columns of the stored matrix, and the distance of its lines */
} matrix;

static __thread int connection = -1;
static __thread pid_t owner = 0;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_thread_end;

/* Ends the program with one line: what failed and why. Nothing of the program runs any more, not what it left for its
 * exit: that may multiply. */
static void end_program(const char *what, const char *why)
{
    char line[512];
    int length = snprintf(line, sizeof line,
                          "hwsim blas: %s (%s); the program ends here, as its own BLAS would give other bits\n", what,
                          why);
    if (write(STDERR_FILENO, line, (size_t)length) < 0)
        _exit(CANNOT_GO_ON);
    _exit(CANNOT_GO_ON);
}

/* Sends or receives all of it, or ends the program. */
static void all(int to_write, int fd, void *data, size_t size)
{
    char *at = data;
    while (size) {
        ssize_t n = to_write ? send(fd, at, size, MSG_NOSIGNAL) : recv(fd, at, size, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            end_program("the connection to the simulated device is lost", n ? strerror(errno) : "hwsim closed it");
        at += n;
        size -= (size_t)n;
    }
}

static void close_connection(void *kept)
{
    (void)kept;
    if (connection >= 0)
        close(connection);
    connection = -1;
}

static void make_key(void) { pthread_key_create(&at_thread_end, close_connection); }

/* The descriptor of this thread's connection, which is closed when the thread ends; -1 where no socket is named. */
static int connected(void)
{
    const char *path = getenv("HWSIM_BLAS_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int outcome;
    if (connection >= 0 && owner == getpid())
        return connection;
    close_connection(NULL); /* after a fork the parent's connection is not this process's */
    if (path == NULL)
        return -1;
    if (strlen(path) >= sizeof address.sun_path)
        end_program("no connection to the simulated device", "the path in HWSIM_BLAS_SOCKET is too long");
    strcpy(address.sun_path, path);
    owner = getpid();
    if ((connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) < 0)
        end_program("no connection to the simulated device", strerror(errno));
    do
        outcome = connect(connection, (struct sockaddr *)&address, sizeof address);
    while (outcome && errno == EINTR);
    if (outcome)
        end_program("no connection to the simulated device", strerror(errno));
    pthread_once(&once, make_key);
    pthread_setspecific(at_thread_end, &connection); /* any value but NULL: the key's function is then called */
    return connection;
}

static void *memory_of(size_t size)
{
    void *memory = malloc(size);
    if (memory == NULL)
        end_program("no memory for a matrix", strerror(ENOMEM));
    return memory;
}

static void send_matrix(int fd, matrix x, int row_major, size_t width)
{
    int64_t lines = row_major ? x.rows : x.cols, length = row_major ? x.cols : x.rows;
    if (x.ld == length)
        all(1, fd, (void *)x.data, (size_t)(lines * length) * width);
    else
        for (int64_t i = 0; i < lines; i++)
            all(1, fd, (char *)x.data + (size_t)(i * x.ld) * width, (size_t)length * width);
}

static int is_transposed(char trans) { return trans != 'N' && trans != 'n'; }

/* C = alpha op(A) op(B) + beta C on the device; 0: not taken, C is as it was. part: of C that is written. */
static int product(const char *routine, char type, int row_major, char trans_a, char trans_b, int64_t m, int64_t n,
                   int64_t k, const double *alpha, const void *a, int64_t lda, const void *b, int64_t ldb,
                   const double *beta, void *c, int64_t ldc, int part)
{
    size_t width = type == 's' ? 4 : type == 'z' ? 16 : 8;
    request head;
    int32_t status = DONE;
    int fd;
    char *result;
    if (m <= 0 || n <= 0 || k <= 0 || (fd = connected()) < 0)
        return 0;
    memset(&head, 0, sizeof head);
    memcpy(head.magic, "HWBLAS1", 8);
    strncpy(head.routine, routine, sizeof head.routine - 1);
    head.type = type, head.trans_a = trans_a, head.trans_b = trans_b, head.row_major = (char)row_major;
    head.m = m, head.n = n, head.k = k;
    memcpy(head.alpha, alpha, sizeof head.alpha);
    memcpy(head.beta, beta, sizeof head.beta);
    head.has_c = beta[0] != 0 || beta[1] != 0;
    matrix left = {a, is_transposed(trans_a) ? k : m, is_transposed(trans_a) ? m : k, lda};
    matrix right = {b, is_transposed(trans_b) ? n : k, is_transposed(trans_b) ? k : n, ldb};
    matrix out = {c, m, n, ldc};
    size_t size = (size_t)(m * n) * width;
    all(1, fd, &head, sizeof head);
    all(0, fd, &status, sizeof status);
    if (status == REFUSED)
        return 0;
    send_matrix(fd, left, row_major, width);
    send_matrix(fd, right, row_major, width);
    if (head.has_c)
        send_matrix(fd, out, row_major, width);
    all(0, fd, &status, sizeof status);
    if (status == REFUSED)
        return 0;
    if (status & ~(OVERFLOWED | INVALID))
        end_program("no result from the simulated device", "the answer has an unknown status");
    result = memory_of(size);
    all(0, fd, result, size);
    /* As the program's own arithmetic would have. */
    feraiseexcept((status & OVERFLOWED ? FE_OVERFLOW | FE_INEXACT : 0) | (status & INVALID ? FE_INVALID : 0));
    int64_t lines = row_major ? m : n, length = row_major ? n : m;
    for (int64_t i = 0; i < lines; i++) {
        int64_t first = 0, last = length;
        if (part != FULL) { /* of line i: a row where row_major, else a column */
            int keeps_upper = (part == UPPER) == (row_major != 0);
            first = keeps_upper ? i : 0;
            last = keeps_upper ? length : i + 1;
        }
        memcpy((char *)c + (size_t)(i * ldc + first) * width, result + (size_t)(i * length + first) * width,
               (size_t)(last - first) * width);
    }
    free(result);
    return 1;
}

/* A vector without gaps. Freed by the caller where it is not x itself. */
static void *gathered(const void *x, int64_t n, int64_t step, size_t width)
{
    const char *from = x;
    char *to;
    if (step == 1)
        return (void *)x;
    to = memory_of((size_t)n * width);
    if (step < 0)
        from += (size_t)((1 - n) * step) * width;
    for (int64_t i = 0; i < n; i++)
        memcpy(to + (size_t)i * width, from + (int64_t)width * step * i, width);
    return to;
}

static void scattered(void *y, int64_t n, int64_t step, size_t width, const char *from)
{
    char *to = y;
    if (step < 0)
        to += (size_t)((1 - n) * step) * width;
    for (int64_t i = 0; i < n; i++)
        memcpy(to + (int64_t)width * step * i, from + (size_t)i * width, width);
}

static int vector_product(char type, int row_major, char trans, int64_t m, int64_t n, const double *alpha, const void *a,
                          int64_t lda, const void *x, int64_t incx, const double *beta, void *y, int64_t incy)
{
    size_t width = type == 's' ? 4 : type == 'z' ? 16 : 8;
    int64_t rows = is_transposed(trans) ? n : m, depth = is_transposed(trans) ? m : n;
    if (m <= 0 || n <= 0)
        return 0;
    void *right = gathered(x, depth, incx, width), *out = gathered(y, rows, incy, width);
    /* a vector is one column: of distance depth by columns, of distance 1 by rows */
    int done = product("gemv", type, row_major, trans, 'N', rows, 1, depth, alpha, a, lda, right,
                       row_major ? 1 : depth, beta, out, row_major ? 1 : rows, FULL);
    if (done && out != y)
        scattered(y, rows, incy, width, out);
    if (right != x)
        free(right);
    if (out != y)
        free(out);
    return done;
}

static int dot_product(char type, char trans, int64_t n, const void *x, int64_t incx, const void *y, int64_t incy,
                       void *result)
{
    size_t width = type == 's' ? 4 : type == 'z' ? 16 : 8;
    static const double one[2] = {1, 0}, none[2] = {0, 0};
    if (n <= 0)
        return 0;
    void *left = gathered(x, n, incx, width), *right = gathered(y, n, incy, width);
    int done = product("dot", type, 0, trans, 'N', 1, 1, n, one, left, n, right, n, none, result, 1, FULL);
    if (left != x)
        free(left);
    if (right != y)
        free(right);
    return done;
}

/* The program's own routine: the next one in order, or one of a library that was loaded for somebody alone, as Python
 * loads extensions with the BLAS that they bring. */
typedef struct {
    const char *name;
    void *not_this, *found;
} search;

static int look_into(struct dl_phdr_info *info, size_t size, void *given)
{
    search *wanted = given;
    void *library, *found;
    (void)size;
    if (info->dlpi_name == NULL || !*info->dlpi_name
        || (library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD)) == NULL)
        return 0;
    found = dlsym(library, wanted->name);
    dlclose(library);
    if (found == NULL || found == wanted->not_this)
        return 0;
    wanted->found = found;
    return 1;
}

static void *own_routine(const char *name, void *not_this)
{
    search wanted = {name, not_this, dlsym(RTLD_NEXT, name)};
    if (wanted.found == NULL)
        dl_iterate_phdr(look_into, &wanted);
    return wanted.found;
}

static void real(double *to, double value) { to[0] = value, to[1] = 0; }
static void complex_of(double *to, const void *value, char type)
{
    if (type == 'c')
        to[0] = ((const float *)value)[0], to[1] = ((const float *)value)[1];
    else
        to[0] = ((const double *)value)[0], to[1] = ((const double *)value)[1];
}

static char letter(int cblas) { return cblas == 111 ? 'N' : cblas == 112 ? 'T' : 'C'; }
static int fortran_part(char uplo) { return uplo == 'U' || uplo == 'u' ? UPPER : LOWER; }
static int cblas_part(int uplo) { return uplo == 121 ? UPPER : LOWER; }

#define NEXT(name, type)                                                                                               \
    static type next = NULL;                                                                                           \
    if (next == NULL)                                                                                                  \
        next = (type)own_routine(#name, (void *)name);                                                                 \
    if (next == NULL) {                                                                                                \
        fprintf(stderr, "hwsim: " #name " is called, and no BLAS of the program has it\n");                            \
        abort();                                                                                                       \
    }

/* --- gemm ------------------------------------------------------------------------------------------------------- */

#define FORTRAN_GEMM(name, INT, T, code, TAKE)                                                                          \
    void name(const char *ta, const char *tb, const INT *m, const INT *n, const INT *k, const T *alpha, const T *a,    \
              const INT *lda, const T *b, const INT *ldb, const T *beta, T *c, const INT *ldc)                         \
    {                                                                                                                  \
        typedef void (*routine)(const char *, const char *, const INT *, const INT *, const INT *, const T *,          \
                                const T *, const INT *, const T *, const INT *, const T *, T *, const INT *);          \
        double x[2], y[2];                                                                                             \
        TAKE(x, alpha, code);                                                                                          \
        TAKE(y, beta, code);                                                                                           \
        if (!product("gemm", code, 0, *ta, *tb, *m, *n, *k, x, a, *lda, b, *ldb, y, c, *ldc, FULL)) {                  \
            NEXT(name, routine)                                                                                        \
            next(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                                                \
        }                                                                                                              \
    }

#define CBLAS_GEMM(name, INT, T, S, code, TAKE)                                                                         \
    void name(int order, int ta, int tb, INT m, INT n, INT k, S alpha, const T *a, INT lda, const T *b, INT ldb,       \
              S beta, T *c, INT ldc)                                                                                   \
    {                                                                                                                  \
        typedef void (*routine)(int, int, int, INT, INT, INT, S, const T *, INT, const T *, INT, S, T *, INT);         \
        double x[2], y[2];                                                                                             \
        TAKE(x, alpha, code);                                                                                          \
        TAKE(y, beta, code);                                                                                           \
        if (!product("gemm", code, order == ROW_MAJOR, letter(ta), letter(tb), m, n, k, x, a, lda, b, ldb, y, c, ldc,  \
                     FULL)) {                                                                                          \
            NEXT(name, routine)                                                                                        \
            next(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                                         \
        }                                                                                                              \
    }

/* --- syrk, herk: C = alpha A A^T + beta C, or A^T A; one triangle ---------------------------------------------------- */

#define FORTRAN_SYRK(name, INT, T, code, TAKE, OTHER)                                                                   \
    void name(const char *uplo, const char *trans, const INT *n, const INT *k, const T *alpha, const void *a,          \
              const INT *lda, const T *beta, void *c, const INT *ldc)                                                  \
    {                                                                                                                  \
        typedef void (*routine)(const char *, const char *, const INT *, const INT *, const T *, const void *,         \
                                const INT *, const T *, void *, const INT *);                                          \
        double x[2], y[2];                                                                                             \
        int transposed_first = is_transposed(*trans);                                                                      \
        TAKE(x, alpha, code);                                                                                          \
        TAKE(y, beta, code);                                                                                           \
        if (!product(OTHER == 'C' ? "herk" : "syrk", code, 0, transposed_first ? OTHER : 'N', transposed_first ? 'N' : OTHER,  \
                     *n, *n, *k, x, a, *lda, a, *lda, y, c, *ldc, fortran_part(*uplo))) {                              \
            NEXT(name, routine)                                                                                        \
            next(uplo, trans, n, k, alpha, a, lda, beta, c, ldc);                                                      \
        }                                                                                                              \
    }

#define CBLAS_SYRK(name, INT, S, code, TAKE, OTHER)                                                                     \
    void name(int order, int uplo, int trans, INT n, INT k, S alpha, const void *a, INT lda, S beta, void *c, INT ldc) \
    {                                                                                                                  \
        typedef void (*routine)(int, int, int, INT, INT, S, const void *, INT, S, void *, INT);                        \
        double x[2], y[2];                                                                                             \
        int transposed_first = trans != 111;                                                                               \
        TAKE(x, alpha, code);                                                                                          \
        TAKE(y, beta, code);                                                                                           \
        if (!product(OTHER == 'C' ? "herk" : "syrk", code, order == ROW_MAJOR, transposed_first ? OTHER : 'N',             \
                     transposed_first ? 'N' : OTHER, n, n, k, x, a, lda, a, lda, y, c, ldc, cblas_part(uplo))) {           \
            NEXT(name, routine)                                                                                        \
            next(order, uplo, trans, n, k, alpha, a, lda, beta, c, ldc);                                               \
        }                                                                                                              \
    }

/* --- gemv ------------------------------------------------------------------------------------------------------- */

#define FORTRAN_GEMV(name, INT, T, code, TAKE)                                                                          \
    void name(const char *trans, const INT *m, const INT *n, const T *alpha, const T *a, const INT *lda, const T *x,   \
              const INT *incx, const T *beta, T *y, const INT *incy)                                                   \
    {                                                                                                                  \
        typedef void (*routine)(const char *, const INT *, const INT *, const T *, const T *, const INT *, const T *,  \
                                const INT *, const T *, T *, const INT *);                                             \
        double p[2], q[2];                                                                                             \
        TAKE(p, alpha, code);                                                                                          \
        TAKE(q, beta, code);                                                                                           \
        if (!vector_product(code, 0, *trans, *m, *n, p, a, *lda, x, *incx, q, y, *incy)) {                             \
            NEXT(name, routine)                                                                                        \
            next(trans, m, n, alpha, a, lda, x, incx, beta, y, incy);                                                  \
        }                                                                                                              \
    }

#define CBLAS_GEMV(name, INT, T, S, code, TAKE)                                                                         \
    void name(int order, int trans, INT m, INT n, S alpha, const T *a, INT lda, const T *x, INT incx, S beta, T *y,    \
              INT incy)                                                                                                \
    {                                                                                                                  \
        typedef void (*routine)(int, int, INT, INT, S, const T *, INT, const T *, INT, S, T *, INT);                   \
        double p[2], q[2];                                                                                             \
        TAKE(p, alpha, code);                                                                                          \
        TAKE(q, beta, code);                                                                                           \
        if (!vector_product(code, order == ROW_MAJOR, letter(trans), m, n, p, a, lda, x, incx, q, y, incy)) {          \
            NEXT(name, routine)                                                                                        \
            next(order, trans, m, n, alpha, a, lda, x, incx, beta, y, incy);                                           \
        }                                                                                                              \
    }

/* --- dot -------------------------------------------------------------------------------------------------------- */

#define FORTRAN_DOT(name, INT, T, code, TRANS)                                                                          \
    T name(const INT *n, const T *x, const INT *incx, const T *y, const INT *incy)                                     \
    {                                                                                                                  \
        typedef T (*routine)(const INT *, const T *, const INT *, const T *, const INT *);                             \
        T result;                                                                                                      \
        if (dot_product(code, TRANS, *n, x, *incx, y, *incy, &result))                                                 \
            return result;                                                                                             \
        NEXT(name, routine)                                                                                            \
        return next(n, x, incx, y, incy);                                                                              \
    }

#define CBLAS_DOT(name, INT, T, code)                                                                                   \
    T name(INT n, const T *x, INT incx, const T *y, INT incy)                                                          \
    {                                                                                                                  \
        typedef T (*routine)(INT, const T *, INT, const T *, INT);                                                     \
        T result;                                                                                                      \
        if (dot_product(code, 'T', n, x, incx, y, incy, &result))                                                      \
            return result;                                                                                             \
        NEXT(name, routine)                                                                                            \
        return next(n, x, incx, y, incy);                                                                              \
    }

#define CBLAS_DOT_SUB(name, INT, code, TRANS)                                                                           \
    void name(INT n, const void *x, INT incx, const void *y, INT incy, void *result)                                   \
    {                                                                                                                  \
        typedef void (*routine)(INT, const void *, INT, const void *, INT, void *);                                    \
        if (!dot_product(code, TRANS, n, x, incx, y, incy, result)) {                                                  \
            NEXT(name, routine)                                                                                        \
            next(n, x, incx, y, incy, result);                                                                         \
        }                                                                                                              \
    }

#define BY_POINTER(to, value, code) real(to, *(value))
#define BY_VALUE(to, value, code) real(to, value)
#define BY_PAIR(to, value, code) complex_of(to, value, code)

/* All routines under names PREFIX routine SUFFIX (Fortran: with FORTRAN after the routine's name). */
#define ROUTINES(PREFIX, FORTRAN, SUFFIX, INT)                                                                          \
    FORTRAN_GEMM(PREFIX##sgemm##FORTRAN, INT, float, 's', BY_POINTER)                                                  \
    FORTRAN_GEMM(PREFIX##dgemm##FORTRAN, INT, double, 'd', BY_POINTER)                                                 \
    FORTRAN_GEMM(PREFIX##cgemm##FORTRAN, INT, float _Complex, 'c', BY_PAIR)                                            \
    FORTRAN_GEMM(PREFIX##zgemm##FORTRAN, INT, double _Complex, 'z', BY_PAIR)                                           \
    FORTRAN_GEMV(PREFIX##sgemv##FORTRAN, INT, float, 's', BY_POINTER)                                                  \
    FORTRAN_GEMV(PREFIX##dgemv##FORTRAN, INT, double, 'd', BY_POINTER)                                                 \
    FORTRAN_GEMV(PREFIX##cgemv##FORTRAN, INT, float _Complex, 'c', BY_PAIR)                                            \
    FORTRAN_GEMV(PREFIX##zgemv##FORTRAN, INT, double _Complex, 'z', BY_PAIR)                                           \
    FORTRAN_SYRK(PREFIX##ssyrk##FORTRAN, INT, float, 's', BY_POINTER, 'T')                                             \
    FORTRAN_SYRK(PREFIX##dsyrk##FORTRAN, INT, double, 'd', BY_POINTER, 'T')                                            \
    FORTRAN_SYRK(PREFIX##csyrk##FORTRAN, INT, float _Complex, 'c', BY_PAIR, 'T')                                       \
    FORTRAN_SYRK(PREFIX##zsyrk##FORTRAN, INT, double _Complex, 'z', BY_PAIR, 'T')                                      \
    FORTRAN_SYRK(PREFIX##cherk##FORTRAN, INT, float, 'c', BY_POINTER, 'C')                                             \
    FORTRAN_SYRK(PREFIX##zherk##FORTRAN, INT, double, 'z', BY_POINTER, 'C')                                            \
    FORTRAN_DOT(PREFIX##sdot##FORTRAN, INT, float, 's', 'T')                                                           \
    FORTRAN_DOT(PREFIX##ddot##FORTRAN, INT, double, 'd', 'T')                                                          \
    FORTRAN_DOT(PREFIX##cdotu##FORTRAN, INT, float _Complex, 'c', 'T')                                                 \
    FORTRAN_DOT(PREFIX##zdotu##FORTRAN, INT, double _Complex, 'z', 'T')                                                \
    FORTRAN_DOT(PREFIX##cdotc##FORTRAN, INT, float _Complex, 'c', 'C')                                                 \
    FORTRAN_DOT(PREFIX##zdotc##FORTRAN, INT, double _Complex, 'z', 'C')                                                \
    CBLAS_GEMM(PREFIX##cblas_sgemm##SUFFIX, INT, float, float, 's', BY_VALUE)                                          \
    CBLAS_GEMM(PREFIX##cblas_dgemm##SUFFIX, INT, double, double, 'd', BY_VALUE)                                        \
    CBLAS_GEMM(PREFIX##cblas_cgemm##SUFFIX, INT, void, const void *, 'c', BY_PAIR)                                     \
    CBLAS_GEMM(PREFIX##cblas_zgemm##SUFFIX, INT, void, const void *, 'z', BY_PAIR)                                     \
    CBLAS_GEMV(PREFIX##cblas_sgemv##SUFFIX, INT, float, float, 's', BY_VALUE)                                          \
    CBLAS_GEMV(PREFIX##cblas_dgemv##SUFFIX, INT, double, double, 'd', BY_VALUE)                                        \
    CBLAS_GEMV(PREFIX##cblas_cgemv##SUFFIX, INT, void, const void *, 'c', BY_PAIR)                                     \
    CBLAS_GEMV(PREFIX##cblas_zgemv##SUFFIX, INT, void, const void *, 'z', BY_PAIR)                                     \
    CBLAS_SYRK(PREFIX##cblas_ssyrk##SUFFIX, INT, float, 's', BY_VALUE, 'T')                                            \
    CBLAS_SYRK(PREFIX##cblas_dsyrk##SUFFIX, INT, double, 'd', BY_VALUE, 'T')                                           \
    CBLAS_SYRK(PREFIX##cblas_csyrk##SUFFIX, INT, const void *, 'c', BY_PAIR, 'T')                                      \
    CBLAS_SYRK(PREFIX##cblas_zsyrk##SUFFIX, INT, const void *, 'z', BY_PAIR, 'T')                                      \
    CBLAS_SYRK(PREFIX##cblas_cherk##SUFFIX, INT, float, 'c', BY_VALUE, 'C')                                            \
    CBLAS_SYRK(PREFIX##cblas_zherk##SUFFIX, INT, double, 'z', BY_VALUE, 'C')                                           \
    CBLAS_DOT(PREFIX##cblas_sdot##SUFFIX, INT, float, 's')                                                             \
    CBLAS_DOT(PREFIX##cblas_ddot##SUFFIX, INT, double, 'd')                                                            \
    CBLAS_DOT_SUB(PREFIX##cblas_cdotu_sub##SUFFIX, INT, 'c', 'T')                                                      \
    CBLAS_DOT_SUB(PREFIX##cblas_zdotu_sub##SUFFIX, INT, 'z', 'T')                                                      \
    CBLAS_DOT_SUB(PREFIX##cblas_cdotc_sub##SUFFIX, INT, 'c', 'C')                                                      \
    CBLAS_DOT_SUB(PREFIX##cblas_zdotc_sub##SUFFIX, INT, 'z', 'C')

ROUTINES(, _, , int32_t)              /* sgemm_, cblas_sgemm */
ROUTINES(, _64_, 64_, int64_t)        /* sgemm_64_, cblas_sgemm64_ */
ROUTINES(scipy_, _, , int32_t)        /* scipy_sgemm_, scipy_cblas_sgemm: OpenBLAS in wheels */
ROUTINES(scipy_, _64_, 64_, int64_t)  /* scipy_sgemm_64_, scipy_cblas_sgemm64_ */
