"""View models: what each page and fragment shows, as frozen dataclasses of raw values. One class per template.

Rooms fill them, templates read them, `app.web.render.render(view, frame)` joins the two. Standard library only.
"""

from app.web.views.booking import *  # noqa: F403
from app.web.views.edits import *  # noqa: F403
from app.web.views.maintenance import *  # noqa: F403
from app.web.views.money import *  # noqa: F403
from app.web.views.notices import *  # noqa: F403
from app.web.views.operator import *  # noqa: F403
from app.web.views.parts import *  # noqa: F403
from app.web.views.people import *  # noqa: F403
from app.web.views.policies import *  # noqa: F403
from app.web.views.project import *  # noqa: F403
from app.web.views.requests import *  # noqa: F403
from app.web.views.several import *  # noqa: F403
