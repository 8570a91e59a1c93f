/* A stand-in for nvidia-smi: the list, the table and --query-gpu, as the library beside it or of the system tells.
 *
 * Its banner says that it is one. Exit codes and messages of failures are those that scripts know from the real one.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BAD_ARGUMENT = 2, NO_DEVICES = 6, NO_DRIVER = 9, NO_LIBRARY = 12, WIDE = 96 };
#define RULE "+-----------------------------------------+------------------------+----------------------+"
#define LINE "+-----------------------------------------------------------------------------------------+"

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct {
  unsigned index, utilization[2], degrees, milliwatts, limit;
  unsigned long long bytes[3];
  int capability[2];
  char name[WIDE], uuid[WIDE];
  Pci pci;
} Gpu;

static void *library;
static char driver[WIDE];
static int cuda;

static int (*function(const char *name))() {
  void *found = dlsym(library, name);
  if (!found) {
    fprintf(stderr, "nvidia-smi: the library has no %s\n", name);
    exit(255);
  }
  return (int (*)())found;
}
#define NVML(name, ...) function("nvml" #name)(__VA_ARGS__)

static void open_driver(void) {
  library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (!library) {
    printf("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display "
           "Driver is properly installed and present in your system.\n");
    exit(NO_LIBRARY);
  }
  if (NVML(Init_v2) != 0) {
    printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
           "NVIDIA driver is installed and running.\n\n");
    exit(NO_DRIVER);
  }
  NVML(SystemGetDriverVersion, driver, WIDE);
  NVML(SystemGetCudaDriverVersion_v2, &cuda);
}

static Gpu read_gpu(unsigned index) {
  Gpu gpu = {.index = index};
  void *handle;
  if (NVML(DeviceGetHandleByIndex_v2, index, &handle) != 0) {
    printf("Unable to determine the device handle for GPU%u: Unknown Error\n", index);
    exit(255);
  }
  NVML(DeviceGetName, handle, gpu.name, WIDE);
  NVML(DeviceGetUUID, handle, gpu.uuid, WIDE);
  NVML(DeviceGetPciInfo_v3, handle, &gpu.pci);
  NVML(DeviceGetMemoryInfo, handle, gpu.bytes);
  NVML(DeviceGetUtilizationRates, handle, gpu.utilization);
  NVML(DeviceGetTemperature, handle, 0, &gpu.degrees);
  NVML(DeviceGetPowerUsage, handle, &gpu.milliwatts);
  NVML(DeviceGetEnforcedPowerLimit, handle, &gpu.limit);
  NVML(DeviceGetCudaComputeCapability, handle, &gpu.capability[0], &gpu.capability[1]);
  return gpu;
}

static void print_table(const Gpu *gpus, unsigned count) {
  time_t now = time(NULL);
  char date[WIDE], banner[WIDE + 16];
  strftime(date, sizeof date, "%a %b %e %H:%M:%S %Y", localtime(&now));
  snprintf(banner, sizeof banner, "%s (stand-in)", driver);
  printf("%s\n" LINE "\n", date);
  printf("| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %2d.%d     |\n", banner, driver, cuda / 1000, cuda % 100 / 10);
  puts(RULE);
  puts("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |");
  puts("| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |");
  puts("|                                         |                        |               MIG M. |");
  puts("|=========================================+========================+======================|");
  for (unsigned index = 0; index < count; index++) {
    const Gpu *gpu = &gpus[index];
    printf("| %3u  %-30.30s On  |   %-16s Off |                    0 |\n", gpu->index, gpu->name, gpu->pci.bus_id);
    printf("| N/A  %3uC    P0           %4uW / %4uW | %7lluMiB / %6lluMiB |    %3u%%      Default |\n", gpu->degrees,
           gpu->milliwatts / 1000, gpu->limit / 1000, gpu->bytes[2] >> 20, gpu->bytes[0] >> 20, gpu->utilization[0]);
    puts("|                                         |                        |             Disabled |\n" RULE);
  }
  puts("\n" LINE "\n| Processes:                                                                              |");
  puts("|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |");
  puts("|        ID   ID                                                               Usage      |");
  puts("|=========================================================================================|");
  puts("|  No running processes found                                                             |\n" LINE);
}

/* One field of a query, and the unit that `nounits` leaves out. */
static int field(const Gpu *gpu, unsigned count, const char *name, char *text, const char **unit) {
  *unit = "";
#define IS(given) (strcmp(name, given) == 0)
#define TEXT(...) return snprintf(text, WIDE, __VA_ARGS__), 1
  if (IS("index")) TEXT("%u", gpu->index);
  if (IS("count")) TEXT("%u", count);
  if (IS("name") || IS("gpu_name")) TEXT("%s", gpu->name);
  if (IS("uuid") || IS("gpu_uuid")) TEXT("%s", gpu->uuid);
  if (IS("driver_version")) TEXT("%s", driver);
  if (IS("pci.bus_id") || IS("gpu_bus_id")) TEXT("%s", gpu->pci.bus_id);
  if (IS("compute_cap")) TEXT("%d.%d", gpu->capability[0], gpu->capability[1]);
  if (IS("compute_mode")) TEXT("Default");
  if (IS("persistence_mode")) TEXT("Enabled");
  if (IS("mig.mode.current")) TEXT("Disabled");
  if (IS("temperature.gpu")) TEXT("%u", gpu->degrees);
  if (IS("ecc.errors.uncorrected.volatile.total")) TEXT("0");
  *unit = " W";
  if (IS("power.draw")) TEXT("%u.00", gpu->milliwatts / 1000);
  if (IS("power.limit")) TEXT("%u.00", gpu->limit / 1000);
  *unit = " %";
  if (IS("utilization.gpu")) TEXT("%u", gpu->utilization[0]);
  if (IS("utilization.memory")) TEXT("%u", gpu->utilization[1]);
  *unit = " MiB";
  if (IS("memory.total")) TEXT("%llu", gpu->bytes[0] >> 20);
  if (IS("memory.free")) TEXT("%llu", gpu->bytes[1] >> 20);
  if (IS("memory.used")) TEXT("%llu", gpu->bytes[2] >> 20);
  return 0;
}

static void print_row(const Gpu *gpu, unsigned count, const char *query, const char *format) {
  char names[4096], text[WIDE], *rest = names;
  const char *unit, *between = "", *name;
  int is_header = gpu->name[0] == 0, has_units = strstr(format, "nounits") == NULL;
  snprintf(names, sizeof names, "%s", query);
  while ((name = strsep(&rest, ",")) != NULL) {
    name += strspn(name, " ");
    if (!field(gpu, count, name, text, &unit)) {
      printf("Field \"%s\" is not a valid field to query.\n\n", name);
      exit(BAD_ARGUMENT);
    }
    if (is_header && has_units && unit[0]) printf("%s%s [%s]", between, name, unit + 1);
    else if (is_header) printf("%s%s", between, name);
    else printf("%s%s%s", between, text, has_units ? unit : "");
    between = ", ";
  }
  puts("");
}

int main(int arguments, char **values) {
  const char *query = NULL, *format = "csv", *chosen = NULL;
  int is_list = 0, pause = 0;
  for (int number = 1; number < arguments; number++) {
    const char *value = values[number];
    if (strcmp(value, "-L") == 0 || strcmp(value, "--list-gpus") == 0) is_list = 1;
    else if (strncmp(value, "--query-gpu=", 12) == 0) query = value + 12;
    else if (strncmp(value, "--format=", 9) == 0) format = value + 9;
    else if (strncmp(value, "--id=", 5) == 0) chosen = value + 5;
    else if (strncmp(value, "--loop=", 7) == 0) pause = atoi(value + 7);
    else if (strcmp(value, "-i") == 0 && number + 1 < arguments) chosen = values[++number];
    else {
      printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n");
      return BAD_ARGUMENT;
    }
  }
  open_driver();
  unsigned total = 0, count = 0;
  NVML(DeviceGetCount_v2, &total);
  Gpu *gpus = calloc(total + 1, sizeof *gpus);
  for (unsigned index = 0; index < total; index++) {
    Gpu gpu = read_gpu(index);
    char number[16];
    snprintf(number, sizeof number, "%u", index);
    if (!chosen || !strcmp(chosen, number) || !strcmp(chosen, gpu.uuid) || !strcasecmp(chosen, gpu.pci.bus_id)) gpus[count++] = gpu;
  }
  if (count == 0) {
    puts("No devices were found");
    return NO_DEVICES;
  }
  if (query && !strstr(format, "noheader")) print_row(&(Gpu){0}, total, query, format);
  for (unsigned index = 0; index < count && (query || is_list); index++) {
    if (query) print_row(&gpus[index], total, query, format);
    else printf("GPU %u: %s (UUID: %s)\n", gpus[index].index, gpus[index].name, gpus[index].uuid);
  }
  do {
    if (!query && !is_list) print_table(gpus, count);
    fflush(stdout);
  } while (pause && sleep(pause) == 0);
  return 0;
}
