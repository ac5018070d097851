"""Images: headers, decoding, crops, augmentation and preprocessing."""
