"""What all tests share: hypothesis without a deadline, since machines that test are busy, and with what repeats a
failure printed."""

from hypothesis import settings

settings.register_profile("trine", deadline=None, print_blob=True)
settings.load_profile("trine")
