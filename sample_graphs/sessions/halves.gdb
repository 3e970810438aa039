# The table in which ggml looks up a half-precision number: 65536 floats, and the bits of the first of them.
#   ggmltool debug --batch --echo -x sample_graphs/sessions/halves.gdb sample_graphs/arena.yaml
start
step 4
ptype ggml_fp16_t
p sizeof(ggml_fp16_t)
p/d (1 << 16)
p/t (1 << 16)
p sizeof(table_f32_f16) / sizeof(table_f32_f16[0])
p table_f32_f16[0]
p table_f32_f16[1]
p table_f32_f16[2]
p table_f32_f16[3]
p table_f32_f16[4]
x/tw table_f32_f16
p table_f32_f16[1]
x/w table_f32_f16 +  1
p table_f32_f16[2]
x/t table_f32_f16 + 2
p table_f32_f16[3]
p/t table_f32_f16[3]
quit
