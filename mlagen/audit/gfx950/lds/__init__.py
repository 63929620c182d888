"""Order on LDS, barriers and bank phases of a gfx950 kernel, on paths chosen without inputs."""

from mlagen.audit.gfx950.lds.check import check_lds
from mlagen.audit.gfx950.lds.lds_findings import LdsOptions, LdsReport

__all__ = ["LdsOptions", "LdsReport", "check_lds"]
