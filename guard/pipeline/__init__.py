"""One message through the guard: parsing, judgement, release or refusal, and the way back."""
