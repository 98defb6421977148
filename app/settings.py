"""The only reader of the environment. Everything else is handed the frozen `Settings`.

Knows names, defaults and which values are dangerous; opens nothing but the file that keeps the embedded secret key.
"""

from __future__ import annotations

import json
import os
import secrets
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

_PLACEHOLDERS = ("change", "placeholder", "example", "secret", "password", "todo", "xxx", "your-")


class WrongSettings(ValueError):
    """What the environment says cannot work; the text is a sentence for whoever set it."""


def _plain(name: str) -> AliasChoices:
    """A variable that other software knows by the same name, so it carries no prefix of ours."""
    return AliasChoices(name.lower(), name.upper())


class Settings(BaseSettings):
    """What this installation was told, frozen. Each field is read from `BERTH_<FIELD>`, the four addresses and the
    secret key from the names that everybody uses: DATABASE_URL, DATABASE_OWNER_URL, REDIS_URL, SECRET_KEY."""

    model_config = SettingsConfigDict(env_prefix="BERTH_", frozen=True, extra="ignore", populate_by_name=True)

    environment: Literal["development", "production", "test"] = "development"
    data: Path = Field(default=Path("var"), description="the folder of the embedded servers, keys and logs")

    database_url: str | None = Field(default=None, validation_alias=_plain("DATABASE_URL"))
    """The app's role, which owns nothing and passes no row-level policy."""
    database_owner_url: str | None = Field(default=None, validation_alias=_plain("DATABASE_OWNER_URL"))
    """The tables' owner, for migrations only."""
    redis_url: str | None = Field(default=None, validation_alias=_plain("REDIS_URL"))
    secret_key: SecretStr | None = Field(default=None, validation_alias=_plain("SECRET_KEY"))
    """Signs what browsers carry; made and kept in the data folder where nothing is set in development."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    base_url: str | None = None
    """How people reach the pages, without a slash at the end; `http://host:port` unless set."""
    trusted_proxies: str = ""
    """Addresses and networks, with commas between, whose word on the asker's address is taken (`X-Forwarded-For`)."""
    web_processes: int = Field(default=1, ge=1, le=64)

    lease_seconds: int = Field(default=30, ge=1, le=3600)
    """How long a worker that says nothing more keeps its work, at least; longer where a cluster may take longer."""

    smtp_host: str | None = None
    """The mail server; without one notices stand in the pages alone."""
    smtp_port: int = Field(default=587, ge=1, le=65535)
    smtp_tls: Literal["starttls", "tls", "none"] = "starttls"
    """How the way there is encrypted: after a greeting, from the first byte on, or not at all (a server on this machine)."""
    smtp_user: str | None = None
    smtp_password: SecretStr | None = None
    mail_from: str | None = None
    """Who mail comes from: `berth@example.org`, or `Berth <berth@example.org>`."""

    log: Literal["console", "json"] = "console"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_instants: bool = True
    """Whether console lines begin with the time; not where `berth up` writes it."""

    oidc_issuer: str | None = None
    """OpenID Connect is offered when this is set; the provider's metadata is read from below it."""
    oidc_name: str = "Single sign-on"
    oidc_client_id: str | None = None
    oidc_client_secret: SecretStr | None = None
    oidc_scope: str = "openid email profile"
    oidc_groups_claim: str = "groups"
    oidc_group_map: Annotated[dict[str, Any], NoDecode] = Field(default_factory=dict)
    """Which group gives what; JSON, or the name of a file with JSON in it. Its meaning belongs to accounts."""
    oidc_trusts_email: bool = False
    """Whether the provider vouches for every address, also where it does not say `email_verified`."""
    oidc_cluster_user_claim: str | None = None
    """The claim with a person's user name on clusters; without it a rule makes one of the verified address."""

    @field_validator("oidc_group_map", mode="before")
    @classmethod
    def _read_group_map(cls, value: Any) -> Any:
        if isinstance(value, str):
            return json.loads(Path(value).read_text(encoding="utf-8") if not value.lstrip().startswith("{") else value)
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _addresses(cls, value: str) -> str:
        for one in filter(None, (part.strip() for part in value.split(","))):
            try:
                network = ip_network(one, strict=False)
            except ValueError:
                raise ValueError(
                    f"{one!r} is no address or network of a proxy, such as 10.0.0.5 or 10.0.0.0/24"
                ) from None
            if network.prefixlen == 0:
                raise ValueError("everybody would be trusted: name the proxy's own address")
        return value

    @field_validator("data")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("base_url", "oidc_issuer")
    @classmethod
    def _no_slash(cls, value: str | None) -> str | None:
        return value.rstrip("/") if value else None

    @model_validator(mode="after")
    def _safe(self) -> Settings:
        if self.oidc_issuer and not self.oidc_client_id:
            raise ValueError("BERTH_OIDC_ISSUER is set, so BERTH_OIDC_CLIENT_ID has to be set too")
        if self.smtp_host and not self.mail_from:
            raise ValueError("BERTH_SMTP_HOST is set, so BERTH_MAIL_FROM has to be set too")
        if self.mail_from and ("@" not in self.mail_from or any(ord(c) < 32 for c in self.mail_from)):
            raise ValueError("BERTH_MAIL_FROM is an address, such as berth@example.org")
        if self.environment == "production":
            if not self.database_url or not self.redis_url:
                raise ValueError("in production DATABASE_URL and REDIS_URL have to be set")
            for name, secret in (
                ("SECRET_KEY", self.secret_key),
                ("BERTH_OIDC_CLIENT_SECRET", self.oidc_client_secret),
                ("BERTH_SMTP_PASSWORD", self.smtp_password),
            ):
                if secret is not None:
                    _refuse_placeholder(name, secret.get_secret_value())
            if self.secret_key is None or len(self.secret_key.get_secret_value()) < 32:
                raise ValueError("in production SECRET_KEY has to be set, to at least 32 random characters")
        elif self.environment == "development" and self.host not in ("127.0.0.1", "::1", "localhost"):
            raise ValueError(
                f"listening on {self.host} lets others in: set BERTH_ENVIRONMENT=production and the secrets it asks for"
            )
        return self

    @property
    def address(self) -> str:
        """Where people find the pages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.base_url or f"http://{host}:{self.port}"

    @property
    def secure_cookies(self) -> bool:
        """Cookies travel by HTTPS only, wherever the pages do."""
        return self.address.startswith("https://")

    def as_environment(self) -> dict[str, str]:
        """The whole environment of another process that is to have these settings. The owner's address is not in it:
        only migrations need that."""
        plain = ("database_url", "redis_url", "secret_key")
        answer = {name: value for name, value in os.environ.items() if name != "DATABASE_OWNER_URL"}
        for name, value in ((name, getattr(self, name)) for name in type(self).model_fields):
            if value is None or name == "database_owner_url":
                continue
            if isinstance(value, SecretStr):
                value = value.get_secret_value()
            text = json.dumps(value) if isinstance(value, (dict, bool)) else str(value)
            answer[name.upper() if name in plain else f"BERTH_{name.upper()}"] = text
        return answer

    def with_values(self, **values: Any) -> Settings:
        """The same settings with some of them changed, checked again."""
        return _checked({**{name: getattr(self, name) for name in type(self).model_fields}, **values})


def load_settings(**values: Any) -> Settings:
    """Read the environment; `values` (from the command line; None is nothing said) go before it.

    Raises `WrongSettings` with a sentence. The secret key is always there in the answer.
    """
    settings = _checked({name: value for name, value in values.items() if value is not None})
    if settings.secret_key is None:
        settings = settings.with_values(secret_key=SecretStr(_kept_secret(settings.data / "secret-key")))
    return settings


def _checked(values: dict[str, Any]) -> Settings:
    try:
        return Settings(**values)
    except ValidationError as error:
        reasons = [": ".join([*map(str, e["loc"]), e["msg"]]) for e in error.errors(include_input=False)]
        raise WrongSettings("These settings cannot work: " + "; ".join(reasons).replace("Value error, ", "")) from None
    except (OSError, json.JSONDecodeError) as error:
        raise WrongSettings(f"BERTH_OIDC_GROUP_MAP cannot be read: {error}") from None


def _refuse_placeholder(name: str, value: str) -> None:
    if any(word in value.lower() for word in _PLACEHOLDERS) or len(set(value)) < 8:
        raise ValueError(f"{name} looks like a placeholder; set a random one")


def _kept_secret(file: Path) -> str:
    """The random text kept in this file, made the first time, readable by nobody else."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return file.read_text(encoding="ascii").strip()
    with os.fdopen(handle, "w", encoding="ascii") as out:
        out.write(secrets.token_urlsafe(48))
    return file.read_text(encoding="ascii").strip()
