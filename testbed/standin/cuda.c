/* A stand-in for libcuda.so.1: it is there to be found and mounted, and says that nothing can be computed. */
#define API __attribute__((visibility("default"))) int
enum { NO_DEVICE = 100 };
API cuInit(unsigned flags) { (void)flags; return NO_DEVICE; }
API cuDriverGetVersion(int *version) { *version = CUDA; return 0; }
