"""The part of the service with which users let it find its number of workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.autoscale.settings import OFF, AutoscaleSettings
from anabranch.coordinator.autoscaler import Autoscaler
from anabranch.coordinator.coordinator import Coordinator
from anabranch.coordinator.query_clock import QueryWatch
from anabranch.errors import InvalidArgument

DECISIONS_SHOWN = 50


def autoscale_settings(given: Any) -> AutoscaleSettings:
    """What a user has written in the constructor, checked; None: it is off."""
    if given is None:
        return AutoscaleSettings(OFF)
    if not isinstance(given, Mapping):
        raise InvalidArgument(
            f'autoscale must be settings such as {{"min": 2, "max": 8}}, got {given!r}.'
        )
    return AutoscaleSettings().changed(given)


def scaler_of(
    coordinator: Coordinator,
    watch: QueryWatch,
    state_bytes_max: int | None,
    settings: AutoscaleSettings,
) -> Autoscaler:
    """That of a service; `state_bytes_max` is what each worker may have in memory."""
    book = coordinator.load_book(watch, state_bytes_max)
    return Autoscaler(coordinator.moves, book, coordinator.notes, settings)


class ServiceAutoscale:
    """autoscale, autoscaler."""

    def _autoscaler(self) -> Autoscaler:
        raise NotImplementedError

    def autoscale(self, **settings: Any) -> dict[str, Any]:
        """Let the service find the right number of workers while queries run.

        What you do not name stays as it is. The first call begins to recommend; with `mode="act"`
        it acts.

        Parameters
        ----------
        mode : str
            "recommend" (default) only says what it would do, "act" does it, "off" ends it.
        min, max : int
            How few and how many workers. Default: 1 and 8.
        latency_target : float, optional
            Seconds that a batch may take, as the query sees it.
        target_utilization : float
            Without a latency target: how busy workers may be. Default: 0.7.
        catch_up_duration : float
            Seconds that a backlog may take to disappear. Default: 30.
        stabilization_interval : float
            Seconds to look after a step, before the next one. Default: 10.
        scale_down_interval : float
            Seconds for which less must have been enough, before workers leave. Default: 300.

        Returns
        -------
        dict
            The settings that count now.
        """
        autoscaler = self._autoscaler()
        if "mode" not in settings and autoscaler.settings.mode == OFF:
            settings["mode"] = AutoscaleSettings().mode
        return autoscaler.change(settings).to_json()

    def autoscaler(self, limit: int = DECISIONS_SHOWN) -> dict[str, Any]:
        """Settings and the last decisions, the newest last: each with its reason and inputs."""
        return self._autoscaler().describe(limit)
