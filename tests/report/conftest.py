"""The profile with round numbers of the cost tests, and the runtime that is wrong in float32."""

from tests.cost.conftest import profile as profile
from tests.run.lossy import rounded as rounded
