"""What FlashInfer's tests import from the module of this name."""

attention_sink_decl = {"fa2": "", "fa3": ""}
