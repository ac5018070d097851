"""Operations on images: decoding, resizing, crops, augmentation, and their settings."""
