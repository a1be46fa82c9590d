"""What files and batches cost the requests beside them."""
