"""The API tests that the `openai` SDK ships, run directly against a mock server and routed."""
