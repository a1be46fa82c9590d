"""The API tests that the `openai` SDK ships, straight at a mock server and through the router."""
