"""Judges that speak the language of OpenAI, by the name of what they run on.

A preset is where such a server usually listens and what it wants said differently. What it can
do is found by a probe like everywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from geval.errors import ConfigError, nearest
from geval.judges.endpoint import AZURE, OPENAI, Home, azure_endpoint, find_endpoint, local_url
from geval.judges.openai import OPTIONS, OpenAIJudge

_UNBENT = {"top_k": 0, "min_p": 0.0}


@dataclass(frozen=True)
class Preset:
    """One kind of endpoint.

    `argument` is what stands behind the name in a spec. `any_model` tells that a server serves
    one model, which it names itself. `sampling` switches off what bends its sampling by default.
    `prefills` are the ways to continue a begun reply that are tried, see `geval.judges.exact`.
    `cuts` tells that the server silently cuts a prompt that is too long.
    """

    name: str
    home: Home
    argument: str = "MODEL"
    any_model: bool = False
    sampling: Mapping[str, Any] = field(default_factory=dict)
    prefills: tuple[str, ...] = ("plain", "continue", "prefix")
    cuts: bool = False

    def from_spec(
        self,
        argument: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        api_key_env: str | None = None,
        api_version: str | None = None,
        **options: Any,
    ) -> OpenAIJudge:
        """The judge `NAME:ARGUMENT`. Raises ConfigError for a model, key or option amiss."""
        known = (*OPTIONS, "api_version") if self.name == "azure" else OPTIONS
        given = [*options, *(["api_version"] if api_version is not None else [])]
        if unknown := [name for name in given if name not in known]:
            raise ConfigError(
                f"the judge {self.name} has no option {unknown[0]!r}",
                hint=nearest(unknown[0], known),
            )
        model, spec = argument.strip(), f"{self.name}:{argument.strip()}"
        if self.argument == "URL":
            base_url, model = base_url or model, ""
            spec = f"{self.name}:{base_url or self.home.url}"
        if not model and not self.any_model:
            raise ConfigError(
                f"the judge {self.name} needs a {self.argument.casefold()}",
                hint=f"Write {self.name}:{self.argument}.",
            )
        if self.name == "azure":
            endpoint = azure_endpoint(
                model, base_url, api_key=api_key, api_key_env=api_key_env, api_version=api_version
            )
        else:
            if self.any_model or self.cuts:
                base_url = local_url(base_url or "")
            endpoint = find_endpoint(self.home, base_url, api_key=api_key, api_key_env=api_key_env)
        return OpenAIJudge(
            model,
            endpoint,
            name=self.name,
            spec=spec,
            sampling=self.sampling,
            prefills=self.prefills,
            cuts=self.cuts,
            **options,
        )


def _server(name: str, port: int) -> Home:
    return Home(name, f"http://127.0.0.1:{port}/v1")


OPENAI_PRESET = Preset("openai", OPENAI)
AZURE_PRESET = Preset("azure", AZURE, argument="DEPLOYMENT", prefills=())
OLLAMA = Preset("ollama", _server("Ollama", 11434), prefills=("plain",), cuts=True)
VLLM = Preset(
    "vllm",
    _server("vLLM", 8000),
    any_model=True,
    sampling=_UNBENT,
    prefills=("continue", "plain"),
)
LLAMACPP = Preset(
    "llamacpp",
    _server("llama.cpp", 8080),
    argument="URL",
    any_model=True,
    sampling=_UNBENT,
    prefills=("plain",),
)

PRESETS: Mapping[str, Preset] = {
    p.name: p for p in (OPENAI_PRESET, AZURE_PRESET, OLLAMA, VLLM, LLAMACPP)
}
"""Each kind by the name it has in a spec."""
