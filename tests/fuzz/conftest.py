import os

# TensorFlow's oneDNN kernels for float16 and bfloat16 end the process on machines
# that show instructions which they do not run. Read when the first kernel runs.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
