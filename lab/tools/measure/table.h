// A row of the library's table: a kernel's name, the kernel, and how many instructions one iteration of it does.
#pragma once
struct Entry {
  const char *name;
  const void *kernel;
  int work;
};
