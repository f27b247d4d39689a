"""Asks the API server whose a token is and what its owner may do. It stores neither review."""

from __future__ import annotations

from typing import Final

from localvolume.kube.client import Client
from localvolume.kube.kinds import Kind
from localvolume.kube.objects import KubeObject, Trimmed


class User(Trimmed, frozen=True, kw_only=True):
    """A user, as the API server knows it. `extra`: what authenticators add, e.g. a token's node."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class TokenReviewStatus(Trimmed, frozen=True, kw_only=True):
    authenticated: bool = False
    user: User | None = None


class TokenReview(KubeObject, frozen=True, kw_only=True):
    status: TokenReviewStatus = TokenReviewStatus()


class AccessReviewStatus(Trimmed, frozen=True, kw_only=True):
    """Neither is true if no authorizer has an opinion."""

    allowed: bool = False
    denied: bool = False


class SubjectAccessReview(KubeObject, frozen=True, kw_only=True):
    status: AccessReviewStatus = AccessReviewStatus()


TOKEN_REVIEWS: Final = Kind(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False, TokenReview
)
SUBJECT_ACCESS_REVIEWS: Final = Kind(
    "authorization.k8s.io",
    "v1",
    "subjectaccessreviews",
    "SubjectAccessReview",
    False,
    SubjectAccessReview,
)


async def owner_of(client: Client, token: str) -> User | None:
    """The user to whom a token belongs; None if it is not valid. Raises ApiError."""
    review = await client.create(TOKEN_REVIEWS, {"spec": {"token": token}})
    return review.status.user if review.status.authenticated else None


async def may_get(client: Client, user: User, path: str) -> bool:
    """Whether the user may GET a non-resource path. Raises ApiError."""
    spec = {
        "user": user.username,
        "uid": user.uid,
        "groups": user.groups or (),
        "extra": user.extra or {},
        "nonResourceAttributes": {"path": path, "verb": "get"},
    }
    review = await client.create(SUBJECT_ACCESS_REVIEWS, {"spec": spec})
    return review.status.allowed and not review.status.denied
