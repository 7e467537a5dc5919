"""The laboratory's verbs, as the entry points of hwsim-lab name them. It imports no verb's module."""

from hwsim.cli.verbs import Verb

LABORATORY = "laboratory"
REPRODUCE = Verb(
    "a paper's experiment on simulated devices, as a table",
    "reproduce sgemm-cube fig10",
    "hwsim_lab.cli.reproduce",
    LABORATORY,
)
BENCH = Verb(
    "speed of the units' kernels beside NumPy's float32 matmul",
    "bench --quick",
    "hwsim_lab.cli.bench",
    LABORATORY,
)
CAMPAIGN = Verb(
    "compare this machine's GPU with hwsim at length, and keep a summary",
    "golden campaign --out summary",
    "hwsim_lab.cli.campaign",
)
QUESTIONS = Verb(
    "the open questions to hardware, and their operands as a file",
    "golden questions --out questions.npz",
    "hwsim_lab.cli.questions",
)
