/*
 * A small libnvidia-ml.so.1 for tests: devices, values and failures come from the text file that
 * the environment variable FAKE_NVML names. It is read again whenever it changed, so a test changes
 * a machine under a running program by renaming a new file over the old one.
 *
 * A line of the file is a key, one space, and the value up to the end of the line:
 *
 *   devices 2                            how many there are; without it, none
 *   driver_version 580.95.05
 *   init.code 9 | init.delay_ms 2000 | init.hang 1
 *   init.crash 1 | crash.nvmlDeviceGetPowerUsage 1     SIGSEGV in it
 *   generation 1                         after a change, who was initialized before is so no more
 *   stale_code 1                         what is said to those; without it, "uninitialized"
 *   fail.nvmlDeviceGetFanSpeed 3         return code of one function, on every device
 *   device.0.name NVIDIA H100 80GB HBM3
 *   device.0.power_milliwatts 612000
 *   device.0.process.0 4242 compute 1073741824 37 12     pid, kind, bytes (- for "not available"),
 *                                                        and utilization of SMs and memory
 *   device.0.fail.nvmlDeviceGetFanSpeed 3
 *   device.0.field.138.2 4096            a field of GetFieldValues, of link 2; field.83 has no links
 *   device.0.field_type.83 1             its type (NVML_VALUE_TYPE_...); without it, 3
 *   device.0.fail.field.83 3             return code of one field, or of one link of it
 *   device.0.usage.0 4242 -20 37 12 0 0  a row of process utilization: pid, age in ms (below zero:
 *                                        to come), and of SMs, memory, encoder, decoder
 *   device.0.samples.0 5000000 97        a row of GPU utilization samples: when by the driver's clock,
 *                                        in us, and the value, which may be any number, or nan
 *   device.0.samples_type 1              NVML_VALUE_TYPE_...
 *   device.0.gpm_supported 1
 *   device.0.gpm.5 61.25                 a GPM metric now; gpm.5.2 is that of GPU instance 2
 *   device.0.fail.gpm.5 3                return code of one metric
 *   event.1 0 0x8 79                     the first event: device, type and data; the next is event.2
 *   device.0.code 15                     return code of every function
 *   device.0.hang 1 | device.0.delay_ms 50
 *   device.0.instance.2.uuid MIG-...     the MIG instance 2: all that its handle says, by the same
 *                                        keys; there is one where there is a uuid and MIG is on
 *   device.0.instance.2.gpu_instance 7   and compute_instance: its ids, in process lists, too
 *   device.0.instance.2.nameless 1       process lists do not have its ids
 *
 * A value that is not in the file is not supported (3): that is how a GPU without a fan is made.
 * Where FAKE_NVML_CALLS names a file, every call appends its function and device to it.
 *
 * Signatures and layouts follow nvidia-ml-py's ctypes declarations.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, TIMED_OUT = 10, GPU_IS_LOST = 15, ARGUMENT_VERSION_MISMATCH = 25,
};
enum { MOST_DEVICES = 64, MOST_INSTANCES = 8, KEY_SIZE = 192, POLL_MS = 5, EVENT_POLL_MS = 50 };
/* Who waits for an event waits nearly always: it must not cost what a driver's own wait does not. */
static const unsigned long long NOT_AVAILABLE = ~0ull;

typedef unsigned long long u64;
typedef struct device { int unused; } *device_t;
/* A handle is the address of its own place: first those of the devices, then those of each one's
 * first MIG instance, and so on. The number of the place is what is called an index below. */
enum { NO_DEVICE = -1, PLACES = MOST_DEVICES * (1 + MOST_INSTANCES) };
static struct device handles[PLACES];

/* ---- The state file ------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held over every use of what follows */
static struct entry { char *key, *value; } *entries;
static size_t entry_count;
static char *text; /* what the entries point into */
static struct stat text_stat;
static char state_path[4096], calls_path[4096];
static int initialized;
static long generation; /* of the driver that it was initialized with */

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->key, ((const struct entry *)b)->key);
}

static int same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size
        && a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void parse(void)
{
    size_t room = 0;
    char *rest = text, *line;
    entry_count = 0;
    while ((line = strsep(&rest, "\n"))) {
        char *space = strchr(line, ' ');
        if (!space)
            continue;
        if (entry_count == room)
            entries = realloc(entries, (room = room ? 2 * room : 256) * sizeof *entries);
        *space = '\0';
        entries[entry_count++] = (struct entry){line, space + 1};
    }
    qsort(entries, entry_count, sizeof *entries, by_key);
}

/* Use these files from now on. The environment is read only when the library is loaded: while a
 * call that hangs looks at the state again and again, its program may set variables, and glibc then
 * frees what getenv walks over. */
void fakeNvmlUse(const char *state, const char *calls)
{
    pthread_mutex_lock(&lock);
    snprintf(state_path, sizeof state_path, "%s", state ?: "");
    snprintf(calls_path, sizeof calls_path, "%s", calls ?: "");
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void use_those_of_the_environment(void)
{
    fakeNvmlUse(getenv("FAKE_NVML"), getenv("FAKE_NVML_CALLS"));
}

static void refresh(void)
{
    struct stat now = {0};
    int file = open(state_path, O_RDONLY | O_CLOEXEC);
    if (file >= 0)
        fstat(file, &now);
    if (text && same_file(&now, &text_stat))
        goto done;
    free(text);
    free(entries);
    entries = NULL;
    text = calloc(1, (size_t)now.st_size + 1);
    text_stat = now;
    if (file >= 0 && read(file, text, (size_t)now.st_size) < 0)
        *text = '\0';
    parse();
done:
    if (file >= 0)
        close(file);
}

static int prefix(char *key, int index)
{
    if (index == NO_DEVICE)
        return 0;
    int device = index % MOST_DEVICES, instance = index / MOST_DEVICES - 1;
    return instance < 0 ? snprintf(key, KEY_SIZE, "device.%d.", device)
                        : snprintf(key, KEY_SIZE, "device.%d.instance.%d.", device, instance);
}

/* The value of `device.INDEX.KEY`, or of KEY itself for NO_DEVICE; NULL where there is none. */
static const char *find(int index, const char *format, ...)
{
    char key[KEY_SIZE];
    int used = prefix(key, index);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key + used, sizeof key - (size_t)used, format, arguments);
    va_end(arguments);
    struct entry wanted = {key, NULL};
    struct entry *found =
        entry_count ? bsearch(&wanted, entries, entry_count, sizeof wanted, by_key) : NULL;
    return found ? found->value : NULL;
}

static long number(const char *value)
{
    return value ? strtol(value, NULL, 0) : 0;
}

static int device_count(void)
{
    long count = number(find(NO_DEVICE, "devices"));
    return count < 0 ? 0 : count > MOST_DEVICES ? MOST_DEVICES : (int)count;
}

/* ---- Around every call ---------------------------------------------------------------------- */

static void pause_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    pthread_mutex_unlock(&lock); /* a call that waits holds up no other */
    nanosleep(&time, NULL);
    pthread_mutex_lock(&lock);
    refresh();
}

static void count_call(int index, const char *function)
{
    int file = open(calls_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0)
        return;
    if (index < MOST_DEVICES)
        dprintf(file, "%s %d\n", function, index);
    else
        dprintf(file, "%s %d.%d\n", function, index % MOST_DEVICES, index / MOST_DEVICES - 1);
    close(file);
}

static int leave(int code)
{
    pthread_mutex_unlock(&lock);
    return code;
}

static int mig_is_on(int device)
{
    return number(find(device, "mig_mode")) == 1;
}

/* What every call on an instance's handle returns. */
static int instance_code(int index)
{
    int device = index % MOST_DEVICES;
    if (!mig_is_on(device) || !find(index, "uuid"))
        return NOT_FOUND;
    return (int)number(find(index, "code"));
}

static int is_stale(void)
{
    return generation != number(find(NO_DEVICE, "generation"));
}

static int enter_index(int index, const char *function)
{
    pthread_mutex_lock(&lock);
    refresh();
    count_call(index, function);
    if (number(find(NO_DEVICE, "crash.%s", function)))
        raise(SIGSEGV);
    if (!initialized)
        return leave(UNINITIALIZED);
    if (is_stale())
        return leave((int)number(find(NO_DEVICE, "stale_code") ?: "1"));
    int device = index == NO_DEVICE ? NO_DEVICE : index % MOST_DEVICES;
    if (index != NO_DEVICE) {
        while (number(find(device, "hang")))
            pause_ms(POLL_MS);
        long delay = number(find(device, "delay_ms"));
        if (delay > 0)
            pause_ms(delay);
        if (device >= device_count())
            return leave(GPU_IS_LOST);
    }
    int code = 0;
    if (index != NO_DEVICE && !(code = (int)number(find(device, "code"))) && index != device)
        code = instance_code(index);
    if (index != NO_DEVICE && !code)
        code = (int)number(find(index, "fail.%s", function));
    if (!code)
        code = (int)number(find(NO_DEVICE, "fail.%s", function));
    return code ? leave(code) : SUCCESS;
}

/* After SUCCESS the lock is held, and the call ends with `return leave(code)`. */
static int enter(device_t device, int *index, const char *function)
{
    if (device < handles || device >= handles + PLACES)
        return INVALID_ARGUMENT;
    *index = (int)(device - handles);
    return enter_index(*index, function);
}

#define ENTER(device)                                                                              \
    int index;                                                                                     \
    int entered = enter(device, &index, __func__);                                                 \
    if (entered)                                                                                   \
        return entered

/* ---- Shapes of functions -------------------------------------------------------------------- */

#define STORE(type, out, value)                                                                    \
    do {                                                                                           \
        const char *found = value;                                                                 \
        if (!found)                                                                                \
            return leave(NOT_SUPPORTED);                                                           \
        *(out) = (type)strtoull(found, NULL, 0);                                                   \
    } while (0)

static int copy_text(const char *value, char *out, unsigned size)
{
    if (!value)
        return NOT_SUPPORTED;
    if (strlen(value) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return SUCCESS;
}

#define NUMBER(function, type, key)                                                                \
    int function(device_t device, type *out)                                                       \
    {                                                                                              \
        ENTER(device);                                                                             \
        STORE(type, out, find(index, key));                                                        \
        return leave(SUCCESS);                                                                     \
    }
#define PAIR(function, type, first_key, second_key)                                                \
    int function(device_t device, type *first, type *second)                                       \
    {                                                                                              \
        ENTER(device);                                                                             \
        STORE(type, first, find(index, first_key));                                                \
        STORE(type, second, find(index, second_key));                                              \
        return leave(SUCCESS);                                                                     \
    }
#define CHOICE(function, key) /* the argument chooses one of several values */                     \
    int function(device_t device, unsigned which, unsigned *out)                                   \
    {                                                                                              \
        ENTER(device);                                                                             \
        STORE(unsigned, out, find(index, key, which));                                             \
        return leave(SUCCESS);                                                                     \
    }
#define CLOCK(function, suffix)                                                                    \
    int function(device_t device, unsigned type, unsigned *out)                                    \
    {                                                                                              \
        static const char *const names[] = {"graphics", "sm", "memory", "video"};                  \
        ENTER(device);                                                                             \
        if (type >= sizeof names / sizeof *names)                                                  \
            return leave(INVALID_ARGUMENT);                                                        \
        STORE(unsigned, out, find(index, "%s_clock" suffix, names[type]));                         \
        return leave(SUCCESS);                                                                     \
    }
#define TEXT(function, key)                                                                        \
    int function(device_t device, char *out, unsigned size)                                        \
    {                                                                                              \
        ENTER(device);                                                                             \
        return leave(copy_text(find(index, key), out, size));                                      \
    }
#define SYSTEM_TEXT(function, key)                                                                 \
    int function(char *out, unsigned size)                                                         \
    {                                                                                              \
        int entered = enter_index(NO_DEVICE, __func__);                                            \
        return entered ? entered : leave(copy_text(find(NO_DEVICE, key), out, size));              \
    }
#define SYSTEM_NUMBER(function, key)                                                               \
    int function(int *out)                                                                         \
    {                                                                                              \
        int entered = enter_index(NO_DEVICE, __func__);                                            \
        if (entered)                                                                               \
            return entered;                                                                        \
        STORE(int, out, find(NO_DEVICE, key));                                                     \
        return leave(SUCCESS);                                                                     \
    }
/* ---- The library and the system ------------------------------------------------------------- */

static int start(const char *function)
{
    pthread_mutex_lock(&lock);
    refresh();
    count_call(NO_DEVICE, function);
    long delay = number(find(NO_DEVICE, "init.delay_ms"));
    if (delay > 0)
        pause_ms(delay);
    while (number(find(NO_DEVICE, "init.hang")))
        pause_ms(POLL_MS);
    if (number(find(NO_DEVICE, "init.crash")))
        raise(SIGSEGV);
    int code = (int)number(find(NO_DEVICE, "init.code"));
    if (!code && !initialized++)
        generation = number(find(NO_DEVICE, "generation"));
    return leave(code);
}

int nvmlInit(void) { return start(__func__); }
int nvmlInit_v2(void) { return start(__func__); }
int nvmlInitWithFlags(unsigned flags) { return (void)flags, start(__func__); }

int nvmlShutdown(void)
{
    int entered = enter_index(NO_DEVICE, __func__);
    if (entered) /* what is left of a driver that is gone can be forgotten */
        initialized -= initialized > 0 && is_stale();
    if (entered)
        return entered;
    initialized--;
    return leave(SUCCESS);
}

const char *nvmlErrorString(int code)
{
    static _Thread_local char words[48];
    snprintf(words, sizeof words, "fake driver's error %d", code);
    return words;
}

SYSTEM_TEXT(nvmlSystemGetDriverVersion, "driver_version")
SYSTEM_NUMBER(nvmlSystemGetCudaDriverVersion, "cuda_version")
SYSTEM_NUMBER(nvmlSystemGetCudaDriverVersion_v2, "cuda_version")

/* ---- Finding devices ------------------------------------------------------------------------ */

static int count(const char *function, unsigned *out)
{
    int entered = enter_index(NO_DEVICE, function);
    if (entered)
        return entered;
    *out = (unsigned)device_count();
    return leave(SUCCESS);
}

int nvmlDeviceGetCount(unsigned *out) { return count(__func__, out); }
int nvmlDeviceGetCount_v2(unsigned *out) { return count(__func__, out); }

static int attach(int index, const char *function, device_t *out)
{
    int entered = enter_index(index, function);
    if (entered)
        return entered;
    *out = &handles[index];
    return leave(SUCCESS);
}

static int attach_by_index(unsigned wanted, const char *function, device_t *out)
{
    pthread_mutex_lock(&lock);
    refresh();
    int there = wanted < (unsigned)device_count();
    pthread_mutex_unlock(&lock);
    return there || !initialized ? attach((int)wanted, function, out) : INVALID_ARGUMENT;
}

int nvmlDeviceGetHandleByIndex(unsigned wanted, device_t *out)
{
    return attach_by_index(wanted, __func__, out);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned wanted, device_t *out)
{
    return attach_by_index(wanted, __func__, out);
}

/* ---- What a device is ----------------------------------------------------------------------- */

TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetUUID, "uuid")
NUMBER(nvmlDeviceGetMinorNumber, unsigned, "minor_number")
NUMBER(nvmlDeviceGetNumGpuCores, unsigned, "gpu_cores")
NUMBER(nvmlDeviceGetArchitecture, unsigned, "architecture")
PAIR(nvmlDeviceGetCudaComputeCapability, int, "compute_capability_major", "compute_capability_minor")

struct attributes { unsigned multiprocessors, others[7]; u64 memory_mib; };

int nvmlDeviceGetAttributes_v2(device_t device, struct attributes *out)
{
    ENTER(device);
    *out = (struct attributes){0};
    STORE(unsigned, &out->multiprocessors, find(index, "sm_count"));
    out->memory_mib = strtoull(find(index, "memory_total_bytes") ?: "0", NULL, 0) >> 20;
    return leave(SUCCESS);
}

struct pci { unsigned domain, bus, device, device_id; char text[32]; };

static int pci(int index, struct pci *out)
{
    const char *bus_id = find(index, "pci_bus_id"), *device_id = find(index, "pci_device_id");
    if (!bus_id || !device_id)
        return NOT_SUPPORTED;
    if (sscanf(bus_id, "%x:%x:%x", &out->domain, &out->bus, &out->device) != 3)
        return INVALID_ARGUMENT;
    out->device_id = (unsigned)strtoul(device_id, NULL, 16) << 16 | 0x10de; /* vendor below */
    snprintf(out->text, sizeof out->text, "%s", bus_id);
    return SUCCESS;
}

struct pci_v3 {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char text[32];
};

int nvmlDeviceGetPciInfo_v3(device_t device, struct pci_v3 *out)
{
    ENTER(device);
    struct pci found;
    int code = pci(index, &found);
    if (code)
        return leave(code);
    *out = (struct pci_v3){
        .domain = found.domain, .bus = found.bus, .device = found.device,
        .device_id = found.device_id,
    };
    snprintf(out->legacy, sizeof out->legacy, "%04X:%02X:%02X.0", found.domain & 0xffff,
        found.bus & 0xff, found.device & 0xff);
    memcpy(out->text, found.text, sizeof out->text);
    return leave(SUCCESS);
}

/* ---- Readings ------------------------------------------------------------------------------- */

struct memory_v1 { u64 total, free, used; };
struct memory_v2 { unsigned version; u64 total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo(device_t device, struct memory_v1 *out)
{
    ENTER(device);
    u64 reserved = strtoull(find(index, "memory_reserved_bytes") ?: "0", NULL, 0);
    STORE(u64, &out->total, find(index, "memory_total_bytes"));
    STORE(u64, &out->used, find(index, "memory_used_bytes"));
    out->used += reserved; /* version 1 has no other place for it */
    out->free = out->total - out->used;
    return leave(SUCCESS);
}

int nvmlDeviceGetMemoryInfo_v2(device_t device, struct memory_v2 *out)
{
    ENTER(device);
    if (out->version != 0x02000028)
        return leave(ARGUMENT_VERSION_MISMATCH);
    STORE(u64, &out->total, find(index, "memory_total_bytes"));
    STORE(u64, &out->used, find(index, "memory_used_bytes"));
    STORE(u64, &out->reserved, find(index, "memory_reserved_bytes"));
    out->free = out->total - out->used - out->reserved;
    return leave(SUCCESS);
}

int nvmlDeviceGetBAR1MemoryInfo(device_t device, struct memory_v1 *out)
{
    ENTER(device);
    STORE(u64, &out->total, find(index, "bar1_total_bytes"));
    STORE(u64, &out->used, find(index, "bar1_used_bytes"));
    out->free = out->total - out->used;
    return leave(SUCCESS);
}

struct utilization { unsigned gpu, memory; };

int nvmlDeviceGetUtilizationRates(device_t device, struct utilization *out)
{
    ENTER(device);
    STORE(unsigned, &out->gpu, find(index, "gpu_utilization_percent"));
    STORE(unsigned, &out->memory, find(index, "memory_utilization_percent"));
    return leave(SUCCESS);
}

struct temperature { unsigned version, sensor; int temperature; };

int nvmlDeviceGetTemperatureV(device_t device, struct temperature *out)
{
    ENTER(device);
    if (out->version != 0x100000c)
        return leave(ARGUMENT_VERSION_MISMATCH);
    STORE(int, &out->temperature, find(index, "temperature_celsius"));
    return leave(SUCCESS);
}

int nvmlDeviceGetTemperature(device_t device, unsigned sensor, unsigned *out)
{
    ENTER(device);
    if (sensor)
        return leave(INVALID_ARGUMENT);
    STORE(unsigned, out, find(index, "temperature_celsius"));
    return leave(SUCCESS);
}

struct margin { unsigned version; int temperature; };

int nvmlDeviceGetMarginTemperature(device_t device, struct margin *out)
{
    ENTER(device);
    if (out->version != 0x1000008)
        return leave(ARGUMENT_VERSION_MISMATCH);
    const char *found = find(index, "temperature_margin_celsius"); /* may be below zero */
    if (found)
        out->temperature = (int)number(found);
    return leave(found ? SUCCESS : NOT_SUPPORTED);
}

int nvmlDeviceGetFanSpeed_v2(device_t device, unsigned fan, unsigned *out)
{
    ENTER(device);
    const char *fans = find(index, "fans");
    if (fans && fan >= (unsigned)number(fans))
        return leave(INVALID_ARGUMENT);
    const char *own = find(index, "fan_percent.%u", fan);
    STORE(unsigned, out, own ?: find(index, "fan_percent"));
    return leave(SUCCESS);
}

NUMBER(nvmlDeviceGetFanSpeed, unsigned, "fan_percent")
NUMBER(nvmlDeviceGetNumFans, unsigned, "fans")
NUMBER(nvmlDeviceGetPowerUsage, unsigned, "power_milliwatts")
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned, "power_limit_milliwatts")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, "power_limit_enforced_milliwatts")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, "power_limit_default_milliwatts")
NUMBER(nvmlDeviceGetTotalEnergyConsumption, u64, "energy_millijoules")
NUMBER(nvmlDeviceGetPerformanceState, unsigned, "performance_state")
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, u64, "clock_event_reasons")
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, u64, "clock_event_reasons")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, "pcie_generation")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, "pcie_width")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, "pcie_generation_max")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, "pcie_width_max")
NUMBER(nvmlDeviceGetPersistenceMode, unsigned, "persistence_mode")
NUMBER(nvmlDeviceGetComputeMode, unsigned, "compute_mode")
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, unsigned, "power_limit_min_milliwatts",
    "power_limit_max_milliwatts")
/* The second number is the period of sampling, or the mode after a reset: nobody reads it. */
PAIR(nvmlDeviceGetEncoderUtilization, unsigned, "encoder_utilization_percent",
    "encoder_utilization_percent")
PAIR(nvmlDeviceGetDecoderUtilization, unsigned, "decoder_utilization_percent",
    "decoder_utilization_percent")
PAIR(nvmlDeviceGetJpgUtilization, unsigned, "jpeg_utilization_percent", "jpeg_utilization_percent")
PAIR(nvmlDeviceGetOfaUtilization, unsigned, "ofa_utilization_percent", "ofa_utilization_percent")
PAIR(nvmlDeviceGetEccMode, unsigned, "ecc_mode", "ecc_mode")
PAIR(nvmlDeviceGetMigMode, unsigned, "mig_mode", "mig_mode")
CLOCK(nvmlDeviceGetClockInfo, "_mhz")
CLOCK(nvmlDeviceGetMaxClockInfo, "_max_mhz")
NUMBER(nvmlDeviceGetVirtualizationMode, unsigned, "virtualization_mode")
CHOICE(nvmlDeviceGetTemperatureThreshold, "temperature_threshold.%u")
CHOICE(nvmlDeviceGetPcieThroughput, "pcie_throughput_kib.%u")

struct field {
    unsigned id, scope;
    long long timestamp, latency_us;
    unsigned type, code;
    u64 value;
};

int nvmlDeviceGetFieldValues(device_t device, int count, struct field *fields)
{
    ENTER(device);
    for (int n = 0; n < count; n++) {
        unsigned id = fields[n].id, scope = fields[n].scope;
        const char *value = find(index, "field.%u.%u", id, scope);
        if (!value && !scope)
            value = find(index, "field.%u", id);
        const char *fail = find(index, "fail.field.%u.%u", id, scope);
        int code = (int)number(fail ?: find(index, "fail.field.%u", id));
        const char *type = find(index, "field_type.%u", id);
        fields[n].type = type ? (unsigned)number(type) : 3; /* unsigned long long */
        fields[n].code = code ? (unsigned)code : value ? SUCCESS : NOT_SUPPORTED;
        fields[n].value = value && !code ? strtoull(value, NULL, 0) : 0;
    }
    return leave(SUCCESS);
}

/* ---- Samples of utilization ----------------------------------------------------------------- */

enum { GPU_UTILIZATION = 1, UNSIGNED_INT = 1 };

struct busy { u64 time_us; union { double real; u64 whole; } value; };

static unsigned add_busy(struct busy *out, unsigned found, unsigned room, int type, u64 time_us,
    double value)
{
    if (found < room) {
        out[found] = (struct busy){.time_us = time_us};
        if (type == 0)
            out[found].value.real = value;
        else
            out[found].value.whole = (u64)(long long)value;
    }
    return found + 1;
}

/* Rows newer than that. */
static unsigned busy(int index, int type, u64 last_seen_us, struct busy *out, unsigned room)
{
    unsigned found = 0;
    const char *value;
    for (int n = 0; (value = find(index, "samples.%d", n)); n++) {
        char *rest;
        u64 when = strtoull(value, &rest, 0);
        if (when > last_seen_us)
            found = add_busy(out, found, room, type, when, strtod(rest, NULL));
    }
    return found;
}

/* Asked for their number alone, it says how many the ring holds, as the driver does. */
int nvmlDeviceGetSamples(device_t device, unsigned type, u64 last_seen_us, unsigned *value_type,
    unsigned *count, struct busy *out)
{
    ENTER(device);
    if (type != GPU_UTILIZATION || !find(index, "samples.0"))
        return leave(NOT_SUPPORTED);
    const char *said_type = find(index, "samples_type");
    int kind = said_type ? (int)number(said_type) : UNSIGNED_INT;
    unsigned room = out ? *count : 0;
    unsigned found = busy(index, kind, out ? last_seen_us : 0, out, room);
    if (!found)
        return leave(NOT_FOUND);
    *value_type = (unsigned)kind;
    *count = out && found > room ? room : found;
    return leave(SUCCESS);
}

/* ---- Processes ------------------------------------------------------------------------------ */

struct process { unsigned pid; char kind[16]; u64 bytes; int sm_percent, memory_percent; };

/* The device's next process from *cursor on, of that kind or of any where it is NULL. */
static int next_process(int index, const char *kind, int *cursor, struct process *out)
{
    const char *value;
    while ((value = find(index, "process.%d", (*cursor)++))) {
        char bytes[24] = "-";
        *out = (struct process){.sm_percent = -1};
        sscanf(value, "%u %15s %23s %d %d", &out->pid, out->kind, bytes, &out->sm_percent,
            &out->memory_percent);
        out->bytes = *bytes == '-' ? NOT_AVAILABLE : strtoull(bytes, NULL, 0);
        if (!kind || !strcmp(out->kind, kind))
            return 1;
    }
    return 0;
}

struct process_v1 { unsigned pid; u64 bytes; };
struct process_v2 { unsigned pid; u64 bytes; unsigned gpu_instance, compute_instance; };

static unsigned instance_id(int index, const char *key)
{
    const char *id = number(find(index, "nameless")) ? NULL : find(index, "%s", key);
    return id ? (unsigned)number(id) : ~0u; /* no MIG instance */
}

/* A device's list has the processes of its instances, too. */
static int list(device_t device, const char *function, const char *kind, unsigned *count,
    char *out, size_t size)
{
    int index, entered = enter(device, &index, function);
    if (entered)
        return entered;
    unsigned room = out ? *count : 0, found = 0;
    int end = index < MOST_DEVICES && mig_is_on(index) ? PLACES : index + 1;
    for (int place = index; place < end; place += MOST_DEVICES) {
        struct process process;
        for (int cursor = 0; next_process(place, kind, &cursor, &process); found++) {
            struct process_v2 row = {process.pid, process.bytes,
                instance_id(place, "gpu_instance"), instance_id(place, "compute_instance")};
            if (found < room)
                memcpy(out + found * size, &row, size); /* version 1 begins as version 2 does */
        }
    }
    *count = found;
    return leave(found > room ? INSUFFICIENT_SIZE : SUCCESS);
}

#define LIST(function, kind)                                                                       \
    int function(device_t device, unsigned *count, struct process_v1 *out)                         \
    {                                                                                              \
        return list(device, __func__, kind, count, (char *)out, sizeof *out);                      \
    }                                                                                              \
    int function##_v2(device_t device, unsigned *count, struct process_v2 *out)                    \
    {                                                                                              \
        return list(device, __func__, kind, count, (char *)out, sizeof *out);                      \
    }                                                                                              \
    int function##_v3(device_t device, unsigned *count, struct process_v2 *out)                    \
    {                                                                                              \
        return list(device, __func__, kind, count, (char *)out, sizeof *out);                      \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, "compute")
LIST(nvmlDeviceGetGraphicsRunningProcesses, "graphics")
LIST(nvmlDeviceGetMPSComputeRunningProcesses, "mps")

/* ---- What processes use --------------------------------------------------------------------- */

struct usage { u64 time_us; unsigned pid, percent[6]; }; /* that of ProcessesUtilizationInfo */

static u64 now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (u64)now.tv_sec * 1000000 + (u64)now.tv_nsec / 1000;
}

/* Rows newer than that: of the processes that have one, then those of the file as they are. */
static unsigned usage(int index, u64 last_seen_us, struct usage *out, unsigned room)
{
    unsigned found = 0;
    u64 now = now_us();
    const char *value;
    struct process process;
    struct usage row;
    for (int cursor = 0; next_process(index, NULL, &cursor, &process);) {
        row = (struct usage){now, process.pid,
            {(unsigned)process.sm_percent, (unsigned)process.memory_percent}};
        if (process.sm_percent >= 0 && now > last_seen_us && found++ < room)
            out[found - 1] = row;
    }
    for (int n = 0; (value = find(index, "usage.%d", n)); n++) {
        long age_ms = 0;
        unsigned *of = row.percent;
        row = (struct usage){0};
        sscanf(value, "%u %ld %u %u %u %u", &row.pid, &age_ms, of, of + 1, of + 2, of + 3);
        row.time_us = now - (u64)age_ms * 1000;
        if (found++ < room) /* garbage comes however old it is */
            out[found - 1] = row;
    }
    return found;
}

static int code_of_usage(unsigned found, unsigned room)
{
    return !found ? NOT_FOUND : found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

struct process_sample { unsigned pid; u64 time_us; unsigned percent[4]; };

int nvmlDeviceGetProcessUtilization(device_t device, struct process_sample *out, unsigned *count,
    u64 last_seen_us)
{
    ENTER(device);
    unsigned room = out ? *count : 0;
    struct usage *rows = calloc(room + 1, sizeof *rows);
    *count = usage(index, last_seen_us, rows, room);
    for (unsigned n = 0; n < room && n < *count; n++) {
        out[n] = (struct process_sample){.pid = rows[n].pid, .time_us = rows[n].time_us};
        memcpy(out[n].percent, rows[n].percent, sizeof out[n].percent);
    }
    free(rows);
    return leave(code_of_usage(*count, room));
}

struct usage_info { unsigned version, count; u64 last_seen_us; struct usage *rows; };

int nvmlDeviceGetProcessesUtilizationInfo(device_t device, struct usage_info *info)
{
    ENTER(device);
    if (info->version != 0x01000018)
        return leave(ARGUMENT_VERSION_MISMATCH);
    unsigned room = info->rows ? info->count : 0;
    info->count = usage(index, info->last_seen_us, info->rows, room);
    return leave(code_of_usage(info->count, room));
}

/* ---- GPM ------------------------------------------------------------------------------------ */

struct gpm_support { unsigned version, supported; };

int nvmlGpmQueryDeviceSupport(device_t device, struct gpm_support *out)
{
    ENTER(device);
    if (out->version != 1)
        return leave(ARGUMENT_VERSION_MISMATCH);
    out->supported = (unsigned)number(find(index, "gpm_supported"));
    return leave(SUCCESS);
}

enum { MOST_METRICS = 64, WHOLE_DEVICE = -1 };

/* What the device does at that moment; `taken` counts all samples, and is 0 for an empty one. */
typedef struct sample { int index, instance; u64 taken; double now[MOST_METRICS]; } *sample_t;

int nvmlGpmSampleAlloc(sample_t *out)
{
    int entered = enter_index(NO_DEVICE, __func__);
    if (entered)
        return entered;
    *out = calloc(1, sizeof **out);
    return leave(SUCCESS);
}

int nvmlGpmSampleFree(sample_t sample)
{
    int entered = enter_index(NO_DEVICE, __func__);
    if (entered)
        return entered;
    free(sample);
    return leave(SUCCESS);
}

static int take_sample(device_t device, const char *function, int instance, sample_t out)
{
    static u64 taken;
    int index, entered = enter(device, &index, function);
    if (entered)
        return entered;
    if (!number(find(index, "gpm_supported")))
        return leave(NOT_SUPPORTED);
    *out = (struct sample){.index = index, .instance = instance, .taken = ++taken};
    for (int id = 0; id < MOST_METRICS; id++) {
        const char *value = instance == WHOLE_DEVICE ? find(index, "gpm.%d", id)
                                                     : find(index, "gpm.%d.%d", id, instance);
        out->now[id] = value ? strtod(value, NULL) : -1; /* not supported */
    }
    return leave(SUCCESS);
}

int nvmlGpmSampleGet(device_t device, sample_t out)
{
    return take_sample(device, __func__, WHOLE_DEVICE, out);
}

int nvmlGpmMigSampleGet(device_t device, unsigned instance, sample_t out)
{
    return take_sample(device, __func__, (int)instance, out);
}

struct gpm_metric { unsigned id; int code; double value; const char *names[3]; };
struct gpm_metrics { unsigned version, count; sample_t first, second; struct gpm_metric rows[]; };

/* The mean of both samples, which must be two of the same device in the order of their taking. */
int nvmlGpmMetricsGet(struct gpm_metrics *request)
{
    sample_t first = request->first, second = request->second;
    if (!first || !second || !first->taken || first->taken >= second->taken
        || first->index != second->index || first->instance != second->instance)
        return INVALID_ARGUMENT;
    int entered = enter_index(second->index, __func__);
    if (entered)
        return entered;
    if (request->version != 1)
        return leave(ARGUMENT_VERSION_MISMATCH);
    for (unsigned n = 0; n < request->count; n++) {
        struct gpm_metric *row = &request->rows[n];
        if (row->id >= MOST_METRICS)
            return leave(INVALID_ARGUMENT);
        row->code = (int)number(find(second->index, "fail.gpm.%u", row->id));
        if (!row->code && (first->now[row->id] == -1 || second->now[row->id] == -1))
            row->code = NOT_SUPPORTED;
        if (!row->code)
            row->value = (first->now[row->id] + second->now[row->id]) / 2;
    }
    return leave(SUCCESS);
}

/* ---- MIG ------------------------------------------------------------------------------------ */

NUMBER(nvmlDeviceGetGpuInstanceId, unsigned, "gpu_instance")
NUMBER(nvmlDeviceGetComputeInstanceId, unsigned, "compute_instance")

int nvmlDeviceGetMaxMigDeviceCount(device_t device, unsigned *out)
{
    ENTER(device);
    *out = mig_is_on(index) ? MOST_INSTANCES - 1 : 0;
    return leave(SUCCESS);
}

int nvmlDeviceGetMigDeviceHandleByIndex(device_t device, unsigned wanted, device_t *out)
{
    ENTER(device);
    int place = index + MOST_DEVICES * (1 + (int)wanted);
    if (index >= MOST_DEVICES || wanted >= MOST_INSTANCES)
        return leave(INVALID_ARGUMENT);
    if (!mig_is_on(index) || !find(place, "uuid"))
        return leave(NOT_FOUND);
    int code = (int)number(find(index, "fail.%s.%u", __func__, wanted));
    if (!code)
        *out = &handles[place];
    return leave(code);
}

/* ---- Events --------------------------------------------------------------------------------- */

enum { SUPPORTED_EVENTS = 0x1E9F };

/* The last event that it has seen, and of each device the types and the last one before them. */
typedef struct event_set {
    long last;
    u64 types[MOST_DEVICES];
    long before[MOST_DEVICES];
} *event_set_t;
struct event { device_t device; u64 type, data; unsigned gpu_instance, compute_instance; };

int nvmlDeviceGetSupportedEventTypes(device_t device, u64 *out)
{
    ENTER(device);
    *out = SUPPORTED_EVENTS;
    return leave(SUCCESS);
}

static long last_event(void)
{
    long last = 0;
    while (find(NO_DEVICE, "event.%ld", last + 1))
        last++;
    return last;
}

int nvmlEventSetCreate(event_set_t *out)
{
    int entered = enter_index(NO_DEVICE, __func__);
    if (entered)
        return entered;
    *out = calloc(1, sizeof **out);
    (*out)->last = last_event();
    return leave(SUCCESS);
}

int nvmlEventSetFree(event_set_t set)
{
    int entered = enter_index(NO_DEVICE, __func__);
    if (entered)
        return entered;
    free(set);
    return leave(SUCCESS);
}

int nvmlDeviceRegisterEvents(device_t device, u64 types, event_set_t set)
{
    ENTER(device);
    if (types & ~SUPPORTED_EVENTS)
        return leave(NOT_SUPPORTED);
    if (set->types[index])
        return leave(INVALID_ARGUMENT); /* no test's program does this twice */
    set->types[index] = types;
    set->before[index] = last_event(); /* those are not reported */
    return leave(SUCCESS);
}

/* Takes the set's next event out of the file; whether there is one. */
static int next_event(event_set_t set, struct event *out)
{
    const char *value;
    while ((value = find(NO_DEVICE, "event.%ld", set->last + 1))) {
        long event = ++set->last, index = -1;
        *out = (struct event){.gpu_instance = ~0u, .compute_instance = ~0u};
        sscanf(value, "%ld %lli %llu", &index, (long long *)&out->type, &out->data);
        if (index >= 0 && index < MOST_DEVICES && event > set->before[index]
            && set->types[index] & out->type) {
            out->device = &handles[index];
            return 1;
        }
    }
    return 0;
}

int nvmlEventSetWait_v2(event_set_t set, struct event *out, unsigned timeout_ms)
{
    int entered = enter_index(NO_DEVICE, __func__);
    if (entered)
        return entered;
    for (long left = timeout_ms;; left -= EVENT_POLL_MS) {
        if (!initialized)
            return leave(UNINITIALIZED);
        if (next_event(set, out))
            return leave(SUCCESS);
        for (int index = 0; index < MOST_DEVICES; index++)
            if (set->types[index] && number(find(index, "code")) == GPU_IS_LOST)
                return leave(GPU_IS_LOST); /* as NVML has it: for the set as a whole */
        if (left <= 0)
            return leave(TIMED_OUT);
        pause_ms(EVENT_POLL_MS);
    }
}
