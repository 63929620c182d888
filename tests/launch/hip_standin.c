/* A HIP runtime without a GPU, for tests: the functions that hip-python's users call here.
 *
 * Device memory is host memory that nobody may touch (PROT_NONE) except a copy and a running
 * kernel. Launches are queued, with a copy of their arguments, and run when somebody waits for
 * them: at hipStreamSynchronize, hipDeviceSynchronize and hipMemcpy. What runs them, and what a
 * code object holds, is Python's business: standin_on_function and standin_on_launch.
 *
 * Signatures, error codes and struct layouts: hip/hip_runtime_api.h of HIP 6 and 7.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    hipSuccess = 0,
    hipErrorInvalidValue = 1,
    hipErrorOutOfMemory = 2,
    hipErrorInvalidDevicePointer = 17,
    hipErrorNoDevice = 100,
    hipErrorInvalidDevice = 101,
    hipErrorInvalidImage = 200,
    hipErrorNoBinaryForGpu = 209,
    hipErrorInvalidHandle = 400,
    hipErrorNotFound = 500,
    hipErrorContextIsDestroyed = 709,
};
enum { EM_AMDGPU = 224, EF_MACH = 0xff };
enum { MAX = 256, ARGUMENT_BYTES = 4096, PAGE = 4096 };

struct machine { const char *arch; int mach; }; /* e_flags of LLVM AMDGPUUsage */
static const struct machine machines[] = {{"gfx90a", 0x3f}, {"gfx942", 0x4c}, {"gfx950", 0x4f}};

struct hipDeviceProp_t { /* R0600, the fields that are read */
    char name[256];
    char ids[32];
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    char between[856];
    char gcnArchName[256];
    char rest[56];
};
_Static_assert(offsetof(struct hipDeviceProp_t, sharedMemPerBlock) == 296, "R0600");
_Static_assert(offsetof(struct hipDeviceProp_t, gcnArchName) == 1160, "R0600");
_Static_assert(sizeof(struct hipDeviceProp_t) == 1472, "R0600");

struct hipPointerAttribute_t {
    int type, device;
    void *devicePointer, *hostPointer;
    int isManaged;
    unsigned allocationFlags;
};
struct module { const unsigned char *image; size_t bytes; int device; };
struct function { struct module *module; char name[128]; int info[2]; };
struct stream { int device; };
struct memory { char *base; size_t bytes, mapped; int device; };

/* What Python is handed for a launch. */
struct launch {
    const unsigned char *image;
    size_t image_bytes;
    const char *name;
    unsigned grid[3], block[3], dynamic_lds;
    int device;
    void *stream;
    size_t argument_bytes;
    unsigned char arguments[ARGUMENT_BYTES];
};

static int devices = 1;
static char arch[64] = "gfx950:sramecc+:xnack-";
static _Thread_local int current, last_error;
static struct memory memories[MAX];
static struct stream *streams[MAX];
static struct launch *queue[MAX];
static int queued;
static char calls[1 << 16];
static char failing[64];
static int failure;
/* (image, bytes, name, info) -> 0, or the error: info = threads a workgroup, static LDS bytes. */
static int (*on_function)(const unsigned char *, size_t, const char *, int *);
static int (*on_launch)(const struct launch *);

static int answer(int status) {
    if (status) last_error = status;
    return status;
}

/* Writes the call down; the error that it shall end with, or 0. */
static int called(const char *name) {
    if (strlen(calls) + strlen(name) + 2 < sizeof calls) {
        strcat(calls, name);
        strcat(calls, " ");
    }
    return answer(strcmp(name, failing) ? 0 : failure);
}
#define CALLED() do { int bad = called(__func__); if (bad) return bad; } while (0)

static struct memory *memory_of(const void *at) {
    for (int i = 0; i < MAX; i++) {
        struct memory *m = &memories[i];
        if (m->base && (const char *)at >= m->base && (const char *)at < m->base + m->bytes) return m;
    }
    return NULL;
}

static void open_memory(int mode) {
    for (int i = 0; i < MAX; i++)
        if (memories[i].base) mprotect(memories[i].base, memories[i].mapped, mode);
}

/* Runs what was launched into `stream`, or everything. */
static int drain(void *stream, int all) {
    int status = 0, kept = 0, count = queued;
    struct launch *work[MAX];
    memcpy(work, queue, sizeof work);
    for (int i = 0; i < count; i++)
        if (!all && work[i]->stream != stream) queue[kept++] = work[i];
    queued = kept;
    for (int i = 0; i < count; i++) {
        if (!all && work[i]->stream != stream) continue;
        open_memory(PROT_READ | PROT_WRITE);
        int bad = on_launch ? on_launch(work[i]) : hipErrorInvalidHandle;
        open_memory(PROT_NONE);
        if (!status) status = bad;
        free(work[i]);
    }
    return status;
}

/* ---- what tests say ---- */

void standin_machine(int count, const char *name) {
    devices = count;
    snprintf(arch, sizeof arch, "%s", name);
}
void standin_on_function(int (*call)(const unsigned char *, size_t, const char *, int *)) {
    on_function = call;
}
void standin_on_launch(int (*call)(const struct launch *)) { on_launch = call; }
void standin_fail(const char *name, int status) {
    snprintf(failing, sizeof failing, "%s", name);
    failure = status;
}
const char *standin_calls(void) { return calls; }
void standin_forget(void) { calls[0] = 0; }
int standin_queued(void) { return queued; }
int standin_last_error(void) { return last_error; }
/* Bytes from `at` to the end of its memory; 0: none of the device. */
size_t standin_extent(const void *at) {
    struct memory *m = memory_of(at);
    return m ? (size_t)(m->base + m->bytes - (const char *)at) : 0;
}

/* ---- the runtime ---- */

int hipInit(unsigned flags) {
    CALLED();
    return answer(flags ? hipErrorInvalidValue : devices ? hipSuccess : hipErrorNoDevice);
}
int hipGetDeviceCount(int *count) {
    CALLED();
    *count = devices;
    return answer(devices ? hipSuccess : hipErrorNoDevice);
}
int hipGetDevice(int *device) {
    CALLED();
    *device = current;
    return hipSuccess;
}
int hipSetDevice(int device) {
    CALLED();
    if (device < 0 || device >= devices) return answer(hipErrorInvalidDevice);
    current = device;
    return hipSuccess;
}
int hipGetDevicePropertiesR0600(struct hipDeviceProp_t *prop, int device) {
    CALLED();
    if (device < 0 || device >= devices) return answer(hipErrorInvalidDevice);
    memset(prop, 0, sizeof *prop);
    strcpy(prop->name, "AMD Stand-in");
    strcpy(prop->gcnArchName, arch);
    prop->sharedMemPerBlock = strncmp(arch, "gfx950", 6) ? 65536 : 163840;
    return hipSuccess;
}
int hipGetLastError(void) {
    int status = last_error;
    called(__func__);
    last_error = 0;
    return status;
}
const char *hipGetErrorString(int status) {
    static char text[64];
    snprintf(text, sizeof text, "the runtime's own words for %d", status);
    return text;
}

int hipMalloc(void **at, size_t bytes) {
    CALLED();
    for (int i = 0; i < MAX; i++) {
        struct memory *m = &memories[i];
        if (m->base) continue;
        m->mapped = (bytes + PAGE - 1) / PAGE * PAGE;
        m->base = mmap(NULL, m->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        m->bytes = bytes;
        m->device = current;
        *at = m->base;
        return hipSuccess;
    }
    return answer(hipErrorOutOfMemory);
}
int hipFree(void *at) {
    CALLED();
    struct memory *m = memory_of(at);
    if (!at) return hipSuccess;
    if (!m || m->base != at) return answer(hipErrorInvalidValue);
    drain(NULL, 1);
    munmap(m->base, m->mapped);
    memset(m, 0, sizeof *m);
    return hipSuccess;
}
int hipMemcpy(void *to, const void *from, size_t bytes, int kind) {
    (void)kind;
    CALLED();
    int status = drain(NULL, 1);
    if (status) return answer(status);
    open_memory(PROT_READ | PROT_WRITE);
    memcpy(to, from, bytes);
    open_memory(PROT_NONE);
    return hipSuccess;
}
int hipPointerGetAttributes(struct hipPointerAttribute_t *found, const void *at) {
    CALLED();
    struct memory *m = memory_of(at);
    memset(found, 0, sizeof *found);
    if (!m) return answer(hipErrorInvalidValue);
    found->type = 2; /* hipMemoryTypeDevice */
    found->device = m->device;
    found->devicePointer = (void *)at;
    return hipSuccess;
}

static int known_stream(const struct stream *stream) {
    for (int i = 0; i < MAX; i++)
        if (streams[i] && streams[i] == stream) return 1;
    return 0;
}

int hipModuleLoadData(struct module **made, const void *image) {
    CALLED();
    const unsigned char *e = image;
    uint16_t machine, entries, entry_bytes;
    uint32_t flags;
    uint64_t sections;
    if (memcmp(e, "\177ELF\2\1", 6)) return answer(hipErrorInvalidImage);
    memcpy(&machine, e + 18, 2);
    memcpy(&sections, e + 40, 8);
    memcpy(&flags, e + 48, 4);
    memcpy(&entry_bytes, e + 58, 2);
    memcpy(&entries, e + 60, 2);
    int known = 0;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
        if (!strncmp(machines[i].arch, arch, strcspn(arch, ":")))
            known = machines[i].mach == (int)(flags & EF_MACH);
    if (machine != EM_AMDGPU || !known) return answer(hipErrorNoBinaryForGpu);
    struct module *m = calloc(1, sizeof *m);
    m->bytes = sections + (uint64_t)entries * entry_bytes; /* the section table is last */
    m->image = image;
    m->device = current;
    *made = m;
    return hipSuccess;
}
int hipModuleUnload(struct module *module) {
    CALLED();
    free(module);
    return hipSuccess;
}
int hipModuleGetFunction(struct function **made, struct module *module, const char *name) {
    CALLED();
    struct function *f = calloc(1, sizeof *f);
    f->module = module;
    snprintf(f->name, sizeof f->name, "%s", name);
    int status = on_function
        ? on_function(module->image, module->bytes, name, f->info) : hipErrorNotFound;
    if (status) {
        free(f);
        return answer(status);
    }
    *made = f;
    return hipSuccess;
}
int hipFuncGetAttribute(int *value, int attribute, struct function *function) {
    CALLED();
    if (attribute < 0 || attribute > 1) return answer(hipErrorInvalidValue);
    *value = function->info[attribute];
    return hipSuccess;
}
int hipModuleLaunchKernel(struct function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned lds, struct stream *stream,
                          void **kernel_params, void **extra) {
    CALLED();
    if (!f || kernel_params || !extra || queued == MAX) return answer(hipErrorInvalidValue);
    if (extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != (void *)3)
        return answer(hipErrorInvalidValue);
    if (f->module->device != current) return answer(hipErrorInvalidHandle);
    if (stream && !known_stream(stream)) return answer(hipErrorContextIsDestroyed);
    if (stream && stream->device != current) return answer(hipErrorInvalidHandle);
    size_t bytes = *(size_t *)extra[3];
    if (bytes > ARGUMENT_BYTES || (uint64_t)bx * by * bz > (uint64_t)f->info[0])
        return answer(hipErrorInvalidValue);
    struct launch *l = calloc(1, sizeof *l);
    *l = (struct launch){f->module->image, f->module->bytes, f->name, {gx, gy, gz}, {bx, by, bz},
                         lds, current, stream, bytes, {0}};
    memcpy(l->arguments, extra[1], bytes);
    queue[queued++] = l;
    return hipSuccess;
}

int hipStreamCreate(struct stream **made) {
    CALLED();
    for (int i = 0; i < MAX; i++) {
        if (streams[i]) continue;
        streams[i] = *made = calloc(1, sizeof **made);
        (*made)->device = current;
        return hipSuccess;
    }
    return answer(hipErrorOutOfMemory);
}
int hipStreamSynchronize(struct stream *stream) {
    CALLED();
    return answer(drain(stream, 0));
}
int hipDeviceSynchronize(void) {
    CALLED();
    return answer(drain(NULL, 1));
}
