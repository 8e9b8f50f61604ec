"""What the model is: tensors, operators, parts and boxes."""
