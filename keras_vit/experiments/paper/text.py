"""Results of the ViT paper (arXiv 2010.11929) that its text has, and what its figures draw."""

from keras_vit.experiments.paper.result import PaperResult

DRAWN = "drawn, not printed"
# Top-5 and top-1 with the setup of BiT.
OBJECTNET = (
    PaperResult("Appendix D.9", "ViT-H/14", None, "objectnet", 82.1, setting="top-5", decimals=1),
    PaperResult("Appendix D.9", "ViT-H/14", None, "objectnet", 61.7, setting="top-1", decimals=1),
)
MASKED_PATCHES = PaperResult(
    *("Section 4.6", "ViT-B/16", None, "imagenet2012", 79.9),
    setting="masked patches",
    decimals=1,
)
# Figure 2, whose bars have no numbers; the two other models are in Tables 2 and 9.
FIGURE_2_DRAWN = ("VIVI-Ex-100%", "S4L")
# Figure 4: few-shot accuracy on ImageNet by the images of JFT-300M, in millions. In ViT-b/32 the
# hidden dimensions of ViT-B/32 are halved.
FIGURE_4_MODELS = ("ViT-B/32", "ViT-b/32", "ViT-L/32", "ViT-L/16", "R50x1", "R152x2")
FIGURE_4_IMAGES = (9, 30, 90, 300)
# What section 4.3 says of them: cost, accuracy on the 9M images, and on 90M and more.
TEXT_4 = (
    ("ViT-B/32 against R50x1", "slightly faster", "much worse", "better"),
    ("ViT-L/16 against R152x2", "the same", "the same", "the same"),
)
# Section 4.4.
TEXT_5 = "ViT uses about 2 to 4 times less compute for the same accuracy (average of 5 datasets)"
STATEMENTS = (
    (
        "Appendix D.9",
        "{1.model} on ObjectNet: {1} % top-1, {0} % top-5".format(*OBJECTNET),
    ),
    (
        MASKED_PATCHES.source,
        f"masked patch prediction, {MASKED_PATCHES.model}: {MASKED_PATCHES} % on ImageNet, 2 % "
        "above training from scratch, 4 % below supervised pre-training",
    ),
    ("Section 4.4", TEXT_5),
)
