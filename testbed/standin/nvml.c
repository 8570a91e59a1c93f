/* A stand-in for libnvidia-ml.so.1, for tests on machines without a GPU. Not NVIDIA's, and it computes nothing.
 *
 * The source of truth is the device files beside it: a library at ROOT/usr/lib/... sees the GPUs ROOT/dev/nvidia0 and
 * so on, so that in a container it sees those that the container was given. A GPU's identity comes from the number of
 * its device file: minor = machine << 8 | GPU. Errors are lines "GPU XID" in ROOT/run/nvidia-standin/xid; every
 * listener is told each of them once, also those that came before it.
 * MODEL, MEMORY_MIB, DRIVER and CUDA are given to the compiler.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

#define MOST 64
#define PATH 4096
#define API __attribute__((visibility("default"))) int
enum { OK, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, NO_DRIVER = 9, TIMEOUT = 10 };
enum { XID_EVENT = 8, FIRST_BUS = 0x41, PCI_ID = 0x233510de, WATTS = 700, IDLE_WATTS = 75 };

typedef struct { unsigned number, machine; } Gpu;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { Gpu *gpu; unsigned long long type, data; unsigned gpu_instance, compute_instance; } Event;
typedef struct { long offset; unsigned long long wanted; } Listener;

static char root[PATH];
static Gpu gpus[MOST];
static unsigned count;

static int is_device(const char *name, struct stat *found) {
  char path[PATH + 64];
  snprintf(path, sizeof path, "%s/dev/%s", root, name);
  return stat(path, found) == 0;
}

static void find_root(void) {
  Dl_info self;
  root[0] = 0;
  if (!dladdr((void *)find_root, &self) || !self.dli_fname) return;
  if (!realpath(self.dli_fname, root)) return;
  char *end = strstr(root, "/usr/lib");
  *(end ? end : root) = 0;
}

API nvmlInit_v2(void) {
  struct stat found;
  find_root();
  if (!is_device("nvidiactl", &found)) return NO_DRIVER;
  count = 0;
  for (unsigned number = 0; number < MOST; number++) {
    char name[32];
    snprintf(name, sizeof name, "nvidia%u", number);
    if (is_device(name, &found)) gpus[count++] = (Gpu){number, minor(found.st_rdev) >> 8};
  }
  return OK;
}
API nvmlInit(void) { return nvmlInit_v2(); }
API nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
API nvmlShutdown(void) { return OK; }

__attribute__((visibility("default"))) const char *nvmlErrorString(int code) {
  switch (code) {
    case OK: return "Success";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case NO_DRIVER: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    default: return "Unknown Error";
  }
}

API nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "%s", DRIVER); return OK; }
API nvmlSystemGetNVMLVersion(char *text, unsigned size) { snprintf(text, size, "stand-in %s", DRIVER); return OK; }
API nvmlSystemGetCudaDriverVersion(int *version) { *version = CUDA; return OK; }
API nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = CUDA; return OK; }

/* Which GPUs there are. */
API nvmlDeviceGetCount_v2(unsigned *number) { *number = count; return OK; }
API nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **gpu) {
  if (index >= count) return INVALID_ARGUMENT;
  *gpu = &gpus[index];
  return OK;
}
API nvmlDeviceGetUUID(Gpu *gpu, char *text, unsigned size) {
  snprintf(text, size, "GPU-%08x-0000-4000-8000-%012x", gpu->machine, gpu->number);
  return OK;
}
API nvmlDeviceGetPciInfo_v3(Gpu *gpu, Pci *pci) {
  memset(pci, 0, sizeof *pci);
  pci->bus = FIRST_BUS + gpu->number;
  pci->id = PCI_ID;
  pci->subsystem = PCI_ID;
  snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus);
  snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
  return OK;
}
API nvmlDeviceGetHandleByUUID(const char *uuid, Gpu **gpu) {
  for (unsigned index = 0; index < count; index++) {
    char text[64];
    nvmlDeviceGetUUID(&gpus[index], text, sizeof text);
    if (strcmp(text, uuid) == 0) { *gpu = &gpus[index]; return OK; }
  }
  return NOT_FOUND;
}
API nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, Gpu **gpu) {
  for (unsigned index = 0; index < count; index++) {
    Pci pci;
    nvmlDeviceGetPciInfo_v3(&gpus[index], &pci);
    size_t given = strlen(bus_id), whole = strlen(pci.bus_id);
    if (given <= whole && strcasecmp(pci.bus_id + whole - given, bus_id) == 0) { *gpu = &gpus[index]; return OK; }
  }
  return NOT_FOUND;
}
API nvmlDeviceGetIndex(Gpu *gpu, unsigned *index) { *index = gpu - gpus; return OK; }
API nvmlDeviceGetMinorNumber(Gpu *gpu, unsigned *number) { *number = gpu->number; return OK; }

/* What they are like: all of them idle. */
API nvmlDeviceGetName(Gpu *gpu, char *text, unsigned size) { (void)gpu; snprintf(text, size, "%s", MODEL); return OK; }
API nvmlDeviceGetBrand(Gpu *gpu, unsigned *brand) { (void)gpu; *brand = 14; return OK; }
API nvmlDeviceGetArchitecture(Gpu *gpu, unsigned *value) { (void)gpu; *value = 9; return OK; }
API nvmlDeviceGetCudaComputeCapability(Gpu *gpu, int *major, int *minor) { (void)gpu; *major = 9; *minor = 0; return OK; }
API nvmlDeviceGetMemoryInfo(Gpu *gpu, unsigned long long *bytes) {
  (void)gpu;
  bytes[0] = bytes[1] = (unsigned long long)MEMORY_MIB << 20;
  bytes[2] = 0;
  return OK;
}
API nvmlDeviceGetUtilizationRates(Gpu *gpu, unsigned *percent) { (void)gpu; percent[0] = percent[1] = 0; return OK; }
API nvmlDeviceGetTemperature(Gpu *gpu, unsigned sensor, unsigned *degrees) { (void)gpu; (void)sensor; *degrees = 30; return OK; }
API nvmlDeviceGetPowerUsage(Gpu *gpu, unsigned *milliwatts) { (void)gpu; *milliwatts = IDLE_WATTS * 1000; return OK; }
API nvmlDeviceGetEnforcedPowerLimit(Gpu *gpu, unsigned *milliwatts) { (void)gpu; *milliwatts = WATTS * 1000; return OK; }
API nvmlDeviceGetPersistenceMode(Gpu *gpu, unsigned *mode) { (void)gpu; *mode = 1; return OK; }
API nvmlDeviceGetComputeMode(Gpu *gpu, unsigned *mode) { (void)gpu; *mode = 0; return OK; }
API nvmlDeviceGetMigMode(Gpu *gpu, unsigned *now, unsigned *next) { (void)gpu; (void)now; (void)next; return NOT_SUPPORTED; }
API nvmlDeviceIsMigDeviceHandle(Gpu *gpu, unsigned *is_mig) { (void)gpu; *is_mig = 0; return OK; }
API nvmlDeviceGetMaxMigDeviceCount(Gpu *gpu, unsigned *number) { (void)gpu; *number = 0; return OK; }
API nvmlDeviceGetNumaNodeId(Gpu *gpu, unsigned *node) { (void)gpu; (void)node; return NOT_SUPPORTED; }
API nvmlDeviceGetTopologyCommonAncestor(Gpu *one, Gpu *two, unsigned *level) { (void)one; (void)two; *level = 30; return OK; }
API nvmlDeviceGetP2PStatus(Gpu *one, Gpu *two, unsigned kind, unsigned *status) { (void)one; (void)two; (void)kind; *status = 0; return OK; }
API nvmlDeviceGetNvLinkState(Gpu *gpu, unsigned link, unsigned *state) { (void)gpu; (void)link; (void)state; return NOT_SUPPORTED; }
API nvmlDeviceGetNvLinkRemotePciInfo_v2(Gpu *gpu, unsigned link, Pci *pci) { (void)gpu; (void)link; (void)pci; return NOT_SUPPORTED; }

/* What happens to them. */
API nvmlEventSetCreate(Listener **set) { *set = calloc(1, sizeof **set); return *set ? OK : 999; }
API nvmlEventSetFree(Listener *set) { free(set); return OK; }
API nvmlDeviceGetSupportedEventTypes(Gpu *gpu, unsigned long long *types) { (void)gpu; *types = XID_EVENT; return OK; }
API nvmlDeviceRegisterEvents(Gpu *gpu, unsigned long long types, Listener *set) {
  if (types & XID_EVENT) set->wanted |= 1ULL << gpu->number;
  return OK;
}

static int is_number(const char **text, unsigned *value) {
  const char *begin = *text;
  for (*value = 0; **text >= '0' && **text <= '9'; ++*text) *value = *value * 10 + (unsigned)(**text - '0');
  return *text > begin;
}

/* The next whole line that this listener has not been told. */
static int next_event(Listener *set, Event *event) {
  char path[PATH + 64], line[64];
  struct stat now;
  snprintf(path, sizeof path, "%s/run/nvidia-standin/xid", root);
  FILE *file = fopen(path, "re");
  if (!file || fstat(fileno(file), &now) != 0 || now.st_size < set->offset) set->offset = 0;
  if (!file) return 0;
  int is_told = 0;
  fseek(file, set->offset, SEEK_SET);
  while (!is_told && fgets(line, sizeof line, file) && strchr(line, '\n')) {
    const char *rest = line;
    unsigned number, xid;
    set->offset = ftell(file);
    if (!is_number(&rest, &number) || *rest++ != ' ' || !is_number(&rest, &xid)) continue;
    for (unsigned index = 0; index < count && !is_told; index++) {
      if (gpus[index].number != number || !(set->wanted >> number & 1)) continue;
      *event = (Event){&gpus[index], XID_EVENT, xid, 0xffffffff, 0xffffffff};
      is_told = 1;
    }
  }
  fclose(file);
  return is_told;
}

API nvmlEventSetWait_v2(Listener *set, Event *event, unsigned milliseconds) {
  const unsigned step = 50;
  for (unsigned waited = 0;; waited += step) {
    if (next_event(set, event)) return OK;
    if (waited >= milliseconds) return TIMEOUT;
    nanosleep(&(struct timespec){0, step * 1000000L}, NULL);
  }
}
