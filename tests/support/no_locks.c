/* A disk without locks, as some network file systems are: flock is not supported. */
#include <errno.h>

int flock(int descriptor, int operation) {
    (void)descriptor;
    (void)operation;
    errno = EOPNOTSUPP;
    return -1;
}
