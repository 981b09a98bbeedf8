from typing import NamedTuple


class Chip(NamedTuple):
    """What a GPU is made of: its name as NVML has it, its SMs, and its boost clock in MHz."""

    name: str
    capability: str
    sms: int
    boost: int


# Of datasheets and white papers, where these have them: CUDA cores over cores per SM, "GPU boost
# clock". H100 PCIe, H100 NVL and H200 NVL: NVML's maximum, as `nvidia-smi -q -d CLOCK` prints it;
# H100 SXM, H200, GH200 and H800 likewise, 1980 MHz. B200 and GB200: the same, in the accelerator
# tables of ml-engineering (1965 and 2062 MHz), and torch's count of SMs (148 and 152). H20: 78 SMs
# by Geekbench. A10G: deviceQuery. A16: TechPowerUp. B300: 148 SMs as the B200, no clock published.
# RTX PRO 6000 Server Edition: the clock that its 120 TFLOP/s of float32 take.
CHIPS = {
    "Tesla K80": Chip("Tesla K80", "3.7", 13, 875),
    "Tesla M4": Chip("Tesla M4", "5.2", 8, 1072),
    "Tesla M40": Chip("Tesla M40", "5.2", 24, 1114),
    "Tesla P4": Chip("Tesla P4", "6.1", 20, 1063),
    "Tesla P40": Chip("Tesla P40", "6.1", 30, 1531),
    "P100 PCIe 12 GB": Chip("Tesla P100-PCIE-12GB", "6.0", 56, 1303),
    "P100 PCIe 16 GB": Chip("Tesla P100-PCIE-16GB", "6.0", 56, 1303),
    "P100 SXM2": Chip("Tesla P100-SXM2-16GB", "6.0", 56, 1480),
    "GTX 1050 Ti": Chip("NVIDIA GeForce GTX 1050 Ti", "6.1", 6, 1392),
    "GTX 1080 Ti": Chip("NVIDIA GeForce GTX 1080 Ti", "6.1", 28, 1582),
    "V100 PCIe": Chip("Tesla V100-PCIE-32GB", "7.0", 80, 1380),
    "V100 SXM2": Chip("Tesla V100-SXM2-32GB", "7.0", 80, 1530),
    "V100S": Chip("Tesla V100S-PCIE-32GB", "7.0", 80, 1597),
    "T4": Chip("Tesla T4", "7.5", 40, 1590),
    "A2": Chip("NVIDIA A2", "8.6", 10, 1770),
    "A16": Chip("NVIDIA A16", "8.6", 10, 1695),
    "A10": Chip("NVIDIA A10", "8.6", 72, 1695),
    "A10G": Chip("NVIDIA A10G", "8.6", 80, 1710),
    "A30": Chip("NVIDIA A30", "8.0", 56, 1440),
    "A40": Chip("NVIDIA A40", "8.6", 84, 1740),
    "A100 PCIe 40 GB": Chip("NVIDIA A100-PCIE-40GB", "8.0", 108, 1410),
    "A100 PCIe 80 GB": Chip("NVIDIA A100 80GB PCIe", "8.0", 108, 1410),
    "A100 SXM4 40 GB": Chip("NVIDIA A100-SXM4-40GB", "8.0", 108, 1410),
    "A100 SXM4 80 GB": Chip("NVIDIA A100-SXM4-80GB", "8.0", 108, 1410),
    "A800 PCIe 80 GB": Chip("NVIDIA A800 80GB PCIe", "8.0", 108, 1410),
    "A800 SXM4 40 GB": Chip("NVIDIA A800-SXM4-40GB", "8.0", 108, 1410),
    "A800 SXM4 80 GB": Chip("NVIDIA A800-SXM4-80GB", "8.0", 108, 1410),
    "RTX 3090": Chip("NVIDIA GeForce RTX 3090", "8.6", 82, 1695),
    "RTX 4090": Chip("NVIDIA GeForce RTX 4090", "8.9", 128, 2520),
    "RTX 6000 Ada": Chip("NVIDIA RTX 6000 Ada Generation", "8.9", 142, 2505),
    "L4": Chip("NVIDIA L4", "8.9", 58, 2040),
    "L40": Chip("NVIDIA L40", "8.9", 142, 2490),
    "L40S": Chip("NVIDIA L40S", "8.9", 142, 2520),
    "H100 PCIe": Chip("NVIDIA H100 PCIe", "9.0", 114, 1755),
    "H100 SXM": Chip("NVIDIA H100 80GB HBM3", "9.0", 132, 1980),
    "H100 NVL": Chip("NVIDIA H100 NVL", "9.0", 132, 1785),
    "H200 SXM": Chip("NVIDIA H200", "9.0", 132, 1980),
    "H200 NVL": Chip("NVIDIA H200 NVL", "9.0", 132, 1785),
    "GH200 96 GB": Chip("NVIDIA GH200 480GB", "9.0", 132, 1980),
    "GH200 144 GB": Chip("NVIDIA GH200 144G HBM3e", "9.0", 132, 1980),
    "H800 SXM": Chip("NVIDIA H800", "9.0", 132, 1980),
    "H20 96 GB": Chip("NVIDIA H20", "9.0", 78, 1980),
    "H20 141 GB": Chip("NVIDIA H20-3e", "9.0", 78, 1980),
    "B200": Chip("NVIDIA B200", "10.0", 148, 1965),
    "GB200": Chip("NVIDIA GB200", "10.0", 152, 2062),
    "B300": Chip("NVIDIA B300 SXM6 AC", "10.3", 148, 1965),
    "GB300": Chip("NVIDIA GB300", "10.3", 152, 2062),
    "RTX 5090": Chip("NVIDIA GeForce RTX 5090", "12.0", 170, 2407),
    "RTX PRO 6000": Chip("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0", 188, 2617),
    "RTX PRO 6000 MQ": Chip(
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "12.0", 188, 2288
    ),
    "RTX PRO 6000 SE": Chip("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", 188, 2494),
}
