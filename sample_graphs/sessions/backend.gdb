# A tensor of ten numbers in memory of a CUDA device, a view of half of it, and the buffer with its functions.
#   ggmltool debug --ggml 2025-03 --batch --echo -x sample_graphs/sessions/backend.gdb sample_graphs/arena.yaml
symbol-file 2024-05
break ggml_backend_sched_reserve
run
up
p *x
p ((float*) x->data)[0]
p ((float*) x->data)[1]
p ((float*) x->data)[2]
p ((float*) x->data)[4]
p ((float*) x->data)[3]
p ((float*) x->data)[9]
p x
p half->view_src
p half->view_src == x
p half->view_offs / ggml_type_size(half->type)
p x.backend
p twice.buffer
p twice->data
p twice->view_src
set $buft = x->buffer->buft
set $alignment = ggml_backend_buft_get_alignment($buft)
p $alignment
p ggml_backend_buft_get_max_size($buft)
p ggml_backend_buft_get_alloc_size($buft, x)
p (ggml_backend_buft_get_alloc_size($buft, x) + $alignment - 1) / $alignment * $alignment
p (char *) factor->data - (char *) x->data
p ggml_backend_buffer_name(x->buffer)
p ggml_backend_buffer_get_base(x->buffer) == x->data
p x->buffer->iface.init_tensor
p x->view_src
p ggml_is_quantized(x->type)
tbreak ggml_backend_sched_compute_splits
continue
p ((float*) half->data)[0]
p (char *) half->data - (char *) x->data
quit
