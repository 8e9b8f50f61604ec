"""What is asked of the engines: training, cloud inference, on-device inference."""
