"""The profile with round numbers of the cost tests."""

from tests.cost.conftest import profile as profile
