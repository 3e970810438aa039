"""What llama.cpp's --fit says: whether a model fits into free memory, and what was changed so that it does."""

from __future__ import annotations

from ggmltool.ggml.messages.message import Case, Message

_FUNCTIONS = ("common_params_fit_impl", "common_fit_params", "llama_params_fit_impl", "llama_params_fit")
_OWN = (
    "--fit changes only what the command line leaves open, and {reason}. So nothing was changed, and llama.cpp goes on "
    "with the options as they are."
)
_KEPT = "a model that does not fit, with an option given that --fit would have to change"

FIT: dict[str, Message] = {
    "fit_report": Message(
        (
            "%s: projected memory use with initial parameters [MiB]:",
            "%s: - %s: %d total, %d used, %d free vs. target of %d",
            "%s: - %s: %d total, %d used, %d deficit",
            "%s: projected to use %d MiB of device memory vs. %d MiB of free device memory",
            "%s: projected to use %d MiB of device memory vs. a total of %d MiB",
            "%s: projected to use %d MiB of host memory vs. %d MiB of total host memory",
            "%s: - %s: %d layers, %d MiB used, %d MiB free",
            "%s: - %s: %d layers (%d overflowing), %d MiB used, %d MiB free",
            "%s: getting device memory data for initial parameters:",
            "%s: fitting params to free memory took %.2f seconds",
            "fitting params to device memory ...",
        ),
        _FUNCTIONS,
        "llama.cpp planned the model before it loads anything, and shows what each device would have to hold. A target "
        "is what it keeps free (1 GiB, or --fit-target).",
        "Each start with --fit on, which is the default.",
        "nothing is wrong; `place --device CUDA0:24GiB` shows the same of any device",
        "place",
        level="info",
        program="llama.cpp",
    ),
    "fit_fits": Message(
        (
            "%s: will leave %d >= %d MiB of free device memory, no changes needed",
            "%s: will leave %d >= %d MiB of system memory, no changes needed",
            "%s: targets for free memory can be met on all devices, no changes needed",
            "%s: successfully fit params to free device memory",
            "%s: entire model can be fit by reducing context",
            "%s: entire model should be fit across devices by reducing context",
        ),
        _FUNCTIONS,
        "The model fits into the free memory of the devices, with the target left over: as the options are, or after "
        "what --fit changed (context, layers, experts on the CPU; the lines before say what).",
        "Each start with --fit on.",
        "nothing is wrong; runtime pools of the devices are in no such figure, which is what the target is for",
        "place",
        level="info",
        program="llama.cpp",
    ),
    "fit_short": Message(
        (
            "%s: cannot meet free memory target of %d MiB, need to reduce device memory by %d MiB",
            "%s: cannot meet free memory targets on all devices, need to use %d MiB less in total",
            "%s: cannot fulfill margin of %d MiB on all devices, need to use %d MiB less in total",
            "%s: context size reduced from %d to %d -> need %d MiB less memory in total",
            "%s: context size reduced from %d to %d -> need %d MiB less memory",
            "%s: context size set by user to %d -> no change",
            "%s: with only dense weights in device memory there is a total surplus of %d MiB",
            "%s: with only dense weights in device memory there is still a total deficit of %d MiB",
        ),
        _FUNCTIONS,
        "The model does not fit as the options are, and --fit looks for what to give up: first the context (unless -c "
        "is given), then experts, then layers, which go to the CPU.",
        "A model and a context that are larger than the free memory of the devices.",
        "nothing, if what remains will do; to choose yourself, give -c, -ngl and -ncmoe: `sweep` shows what fits",
        "sweep",
        level="warning",
        program="llama.cpp",
    ),
    "fit_failed": Message(
        (
            "%s: failed to fit params to free device memory: %s",
            "%s: encountered an error while trying to fit params to free device memory: %s",
            "failed to fit params to free device memory",
        ),
        _FUNCTIONS,
        "--fit gave up ({reason}); llama.cpp goes on with the options as they are, and may run out of memory.",
        "A model that does not fit even with all that --fit may change, or an option that it must not change.",
        "choose -ngl, -ncmoe and -c yourself: `sweep` shows what fits",
        "sweep",
        places=(("reason", "the reason stands behind it"),),
        cases=(
            Case("reason", r"n_gpu_layers already set.*", _OWN, f"-ngl together with {_KEPT}.",
                 "leave -ngl out, or choose the number yourself: `sweep` shows what fits"),
            Case("reason", r"model_params::tensor_split already set.*", _OWN, f"-ts together with {_KEPT}.",
                 "leave -ts out, or choose -ngl and -ts yourself: `sweep` shows what fits"),
            Case("reason", r"model_params::tensor_buft_overrides already set.*", _OWN,
                 f"-ot, -cmoe or -ncmoe together with {_KEPT}.",
                 "leave -ot, -cmoe and -ncmoe out (--fit moves experts itself), or choose them yourself: `sweep` shows "
                 "what fits"),
            Case("reason", r".*SPLIT_MODE_(?:TENSOR|ROW).*",
                 "--fit does not know this split mode, so nothing was changed ({reason}).", "-sm tensor or -sm row.",
                 "use -sm layer, or choose -ngl and -c yourself"),
        ),
        level="warning",
        program="llama.cpp",
    ),
}  # fmt: skip
