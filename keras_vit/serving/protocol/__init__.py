"""TF Serving's APIs: requests, and checks of the answers."""
