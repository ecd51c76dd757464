"""Pages beside those of the console's own application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.adapters.redis.trials import TrialStore
from guard.console.incident_pages import IncidentPages
from guard.console.lineage_pages import LineagePages
from guard.console.memory_pages import MemoryPages
from guard.console.pages import PageSources
from guard.console.policy_pages import PolicyPages
from guard.console.session_pages import SessionPages
from guard.console.trial_pages import TrialPages

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.adapters.audit_log import AuditLogFile, NoAuditLog
    from guard.adapters.redis.store import RedisSessionStore
    from guard.console.decisions import DecisionIndex
    from guard.console.incident_api import Repairs
    from guard.console.operator_actions import OperatorActions
    from guard.console.pages import Templates
    from guard.console.policy_drafts import PolicyDrafts
    from guard.console.routes import PagesOf
    from guard.provenance.seal import Seal


def further_pages(
    works: tuple[PolicyDrafts, Repairs],
    state: tuple[RedisSessionStore, Seal],
    shown: tuple[DecisionIndex, OperatorActions],
    audit: AuditLogFile | NoAuditLog,
    now: Callable[[], float],
    templates: Templates,
) -> tuple[PagesOf, ...]:
    """Return the pages beside those of :class:`Console` itself.

    Args:
        works: the policies' drafts, and how repairs of memories are written.
        state: the store and the deployment's seal.
        shown: the index over the audit log, and what people do.
        audit: takes a line per act.
        now: seconds since the epoch.
        templates: of the pages.
    """
    (drafts, repairs), (store, seal), (index, actions) = works, state, shown
    sources = PageSources(store, seal, index, templates, now, lambda: actions.limits)
    return (
        PolicyPages(drafts, templates, audit, now),
        TrialPages(
            drafts=drafts,
            store=TrialStore(store, seal),
            index=index,
            templates=templates,
            audit=audit,
            now=now,
        ),
        SessionPages(sources),
        LineagePages(sources),
        IncidentPages(sources, audit, repairs),
        MemoryPages(sources, audit),
    )
