"""The doctor looks at an installation from its configuration to its running broker, and names what needs a hand.

Each module looks at one part and yields findings; ``examination`` has the parts in their order. A look changes nothing.
"""

from xbus.admin.doctor.examination import PARTS, examine
from xbus.admin.doctor.findings import DoctorFinding

__all__ = ["PARTS", "DoctorFinding", "examine"]
