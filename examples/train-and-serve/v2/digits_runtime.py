"""The digits behind MLServer, a real inference server with the Open Inference Protocol (`pip install mlserver`)."""

from __future__ import annotations

from app import restored
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Digits(MLModel):
    async def load(self) -> bool:
        self.digits, _ = restored()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        images = NumpyCodec.decode_input(payload.inputs[0]).reshape(-1, 64) / 16.0
        output = NumpyCodec.encode_output("probabilities", self.digits.chances(images))
        return InferenceResponse(model_name=self.name, outputs=[output])
