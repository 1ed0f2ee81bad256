"""Attributes of the stand-in that are checked when set: tokens with a role, and sides of a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gristmill.encode.ragged import check_side
from gristmill.errors import SpecialTokenError
from gristmill.tokenizer.formats.tokenizer_config import ROLES

if TYPE_CHECKING:
    from gristmill.compat.huggingface.stand_in import StandInTokenizerFast

__all__ = ["ROLES", "Role", "RoleId", "SideOfText"]


class Role:
    """The special token of a role, such as eos_token: its text, or None. It must be in the vocabulary."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: StandInTokenizerFast | None, owner: type) -> Any:
        return self if instance is None else instance._roles.get(self._name)

    def __set__(self, instance: StandInTokenizerFast, token: str | None) -> None:
        if token is not None and instance._id_of(token) is None:
            raise SpecialTokenError(
                f"{self._name}={token!r} is not in the vocabulary. Pass one of "
                f"{', '.join(map(repr, instance.tokenizer.special_tokens)) or 'its tokens'}, or add it with "
                f"add_special_tokens({{{self._name!r}: {token!r}}})."
            )
        instance._roles[self._name] = token


class RoleId:
    """The id of a role's token, or None."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name.removesuffix("_id")

    def __get__(self, instance: StandInTokenizerFast | None, owner: type) -> Any:
        if instance is None:
            return self
        token = instance._roles.get(self._name)
        return None if token is None else instance._id_of(token)

    def __set__(self, instance: StandInTokenizerFast, id: int | None) -> None:
        setattr(instance, self._name, None if id is None else instance._token_of(id))


class SideOfText:
    """A side of a text, "right" or "left"."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: StandInTokenizerFast | None, owner: type) -> Any:
        return self if instance is None else instance._sides[self._name]

    def __set__(self, instance: StandInTokenizerFast, side: str) -> None:
        instance._sides[self._name] = check_side(self._name, side)
