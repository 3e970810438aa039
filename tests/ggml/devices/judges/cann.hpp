// In place of CANN: as with GGML_CANN_WEIGHT_NZ=off, so that the driver is not asked for the size of weights.
#pragma once

#include "judge.hpp"

#include <optional>

struct aclIntArray {};

inline std::optional<std::string> get_env_as_lowercase(const std::string &) { return "off"; }
inline bool                       parse_bool(const std::string & value) { return value == "on"; }
inline bool                       is_matmul_weight(const ggml_tensor *) { return true; }
inline int                        ggml_cann_type_mapping(ggml_type) { return 0; }

inline aclIntArray * aclCreateIntArray(const int64_t *, size_t) { throw judge_aborted(); }
inline int           aclDestroyIntArray(const aclIntArray *) { throw judge_aborted(); }
inline int           aclnnCalculateMatmulWeightSizeV2(const aclIntArray *, int, uint64_t *) { throw judge_aborted(); }
inline const char *  aclGetRecentErrMsg() { return ""; }
inline void          ggml_cann_error(const char *, const char *, const char *, int, const char *) { throw judge_aborted(); }
