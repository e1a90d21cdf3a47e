"""nvidia-smi in both of its forms."""

from reading import read_any

QUERY = """\
timestamp, index, name, utilization.gpu [%], memory.used [MiB], power.draw [W]
2026/11/29 13:23:56.789, 0, NVIDIA H100, 97 %, 71234 MiB, 412.10 W
2026/11/29 13:23:56.789, 1, NVIDIA H100, [N/A], 71234 MiB, [Not Supported]
timestamp, index, name, utilization.gpu [%], memory.used [MiB], power.draw [W]
2026/11/29 13:23:57.789, 0, NVIDIA H100, 0 %, 71234 MiB, 80.00 W
"""
DMON = """\
#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem     fb  rxpci  txpci
#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %     MB   MB/s   MB/s
 20261129   13:23:56      0    412     61      -     97     43  71234     12      3
 20261129   13:23:57      0    410     61      -     96     43  71234      0      0
"""
COLUMNS = "at_utc name labels value"


def test_a_query_is_named_as_dcgm_names_it_and_what_is_not_available_is_absent():
    form, result = read_any(QUERY)
    assert (form.name, result.account.used, result.account.ignored) == ("nvidia_smi", 3, 2)
    assert result.table("metric_samples", COLUMNS) == [
        ["2026-11-29T13:23:56.789", "DCGM_FI_DEV_GPU_UTIL", "gpu=0", "97"],
        ["2026-11-29T13:23:56.789", "DCGM_FI_DEV_FB_USED", "gpu=0", "71234"],
        ["2026-11-29T13:23:56.789", "DCGM_FI_DEV_POWER_USAGE", "gpu=0", "412.1"],
        ["2026-11-29T13:23:56.789", "DCGM_FI_DEV_FB_USED", "gpu=1", "71234"],
        ["2026-11-29T13:23:57.789", "DCGM_FI_DEV_GPU_UTIL", "gpu=0", "0"],
        ["2026-11-29T13:23:57.789", "DCGM_FI_DEV_FB_USED", "gpu=0", "71234"],
        ["2026-11-29T13:23:57.789", "DCGM_FI_DEV_POWER_USAGE", "gpu=0", "80"],
    ]


def test_dmon_with_its_dates():
    form, result = read_any(DMON)
    assert (form.name, result.account.used) == ("nvidia_smi", 2)
    assert ["2026-11-29T13:23:56", "DCGM_FI_DEV_GPU_UTIL", "gpu=0", "97"] in result.table("metric_samples", COLUMNS)
    assert ["2026-11-29T13:23:56", "DCGM_FI_PROF_PCIE_RX_BYTES", "gpu=0", "1.2e+07"] in result.table("metric_samples", COLUMNS)
    assert len(result.rows["metric_samples"]) == 2 * 7


def test_dmon_without_times_cannot_be_placed():
    _, result = read_any("# gpu    pwr     sm    mem\n# Idx      W      %      %\n    0    412     97     43\n")
    assert (result.account.used, result.account.not_understood, result.rows) == (0, 1, {})
