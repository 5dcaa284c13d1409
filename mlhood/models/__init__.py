"""What is compiled: MLP, LeNet, ResNet, and real data to run them on."""
