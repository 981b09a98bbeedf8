"""The host: processes, control groups, the kernel log, and the files of the driver."""
