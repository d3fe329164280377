"""The alarm on speculation: sequential detection of collapse, drift, stalls and rejections. Pure."""

from gateway.alarm.alarm import Alarm, KindState
from gateway.alarm.baseline import Baseline
from gateway.alarm.observation import Finding, Observation, Settings, What

__all__ = ("Alarm", "Baseline", "Finding", "KindState", "Observation", "Settings", "What")
