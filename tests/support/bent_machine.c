/* A machine on which the clock jumps and the disk is full when a test says so, for one process and
 * those it starts with the same LD_PRELOAD. $BENT_MACHINE names a file of two 64-bit numbers: what
 * is added to the wall clock, in seconds, and whether the disk is full. The monotonic clock is left
 * alone, as it is when somebody sets the clock; what goes to stdout and stderr is always written. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *told;

__attribute__((constructor)) static void look(void) {
  const char *path = getenv("BENT_MACHINE");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *page = mmap(NULL, 16, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (page != MAP_FAILED) told = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, now);
  if (told && result == 0 && clock == CLOCK_REALTIME) now->tv_sec += told[0];
  return result;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}

static int full(int file) {
  struct stat facts;
  if (!told || !told[1] || file <= 2 || fstat(file, &facts) != 0) return 0;
  if (!S_ISREG(facts.st_mode)) return 0;
  errno = ENOSPC;
  return 1;
}

ssize_t write(int file, const void *data, size_t size) {
  static ssize_t (*real)(int, const void *, size_t);
  if (!real) real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
  return size && full(file) ? -1 : real(file, data, size);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
  static ssize_t (*real)(int, const struct iovec *, int);
  if (!real) real = (ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
  return full(file) ? -1 : real(file, parts, count);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
  static ssize_t (*real)(int, const void *, size_t, off64_t);
  if (!real) real = (ssize_t(*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
  return size && full(file) ? -1 : real(file, data, size, at);
}
