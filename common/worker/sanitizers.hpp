// Whether this file is compiled with AddressSanitizer or ThreadSanitizer. In that case the worker neither counts
// allocations (the sanitizer replaces operator new) nor limits its address space (shadow memory takes terabytes).
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WORKBOOK_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WORKBOOK_SANITIZED 1
#endif
#endif

namespace workbook::worker {
#ifdef WORKBOOK_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
inline constexpr bool kCountsMemory = !kSanitized;
}  // namespace workbook::worker
