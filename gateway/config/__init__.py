"""`routing.yaml` -> frozen Runtime; the only reader of the environment; validate, reload."""

from gateway.config.crosscheck import refuse_host
from gateway.config.load import load
from gateway.config.problems import ConfigError, Problem
from gateway.config.runtime import Runtime

__all__ = ["ConfigError", "Problem", "Runtime", "load", "refuse_host"]
