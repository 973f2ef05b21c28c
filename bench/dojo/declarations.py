"""Declarations of the tools of AgentDojo: results, effects and targets, as an operator would write them.

`returns` names the author of a result, or of each of its fields: `id` is written by the system, `directory` is a member
of the user's own directory, `trusted` is the user's or the operator's own data, everything else is untrusted.
"""

from __future__ import annotations

from typing import Any

OURS = {"returns": "trusted"}
THEIRS = {"returns": "untrusted"}
RECORDS = {"returns": {"id": "id", "id_": "id"}}  # the text of the other fields is untrusted


def _read(returns: dict[str, Any], private: str = "") -> dict[str, Any]:
    return {"effect": "read", "private": private, **returns}


def _act(effect: str, *targets: str, returns: Any = "trusted") -> dict[str, Any]:
    return {"effect": effect, "targets": targets, "returns": returns}


ITEM = RECORDS["returns"]
CONTACT = {"returns": {"email": "directory", "name": "directory"}}
MEMBERS = {"returns": "directory"}
CHAT = {"returns": {"sender": "directory", "recipient": "directory"}}

DECLARED: dict[str, dict[str, Any]] = {
    # mail, calendar and drive
    "send_email": _act("send", "recipients", "cc", "bcc", returns=ITEM),
    "delete_email": _act("delete", "email_id"),
    **dict.fromkeys(
        ("get_unread_emails", "get_sent_emails", "get_received_emails", "get_draft_emails", "search_emails"),
        _read(RECORDS, "mail"),
    ),
    **dict.fromkeys(("search_contacts_by_name", "search_contacts_by_email"), _read(CONTACT, "contacts")),
    "get_current_day": _read(OURS),
    **dict.fromkeys(("search_calendar_events", "get_day_calendar_events"), _read(RECORDS, "calendar")),
    "create_calendar_event": _act("send", "title", "participants", returns=ITEM),
    "cancel_calendar_event": _act("send", "event_id"),
    "reschedule_calendar_event": _act("send", "event_id", returns=ITEM),
    "add_calendar_event_participants": _act("send", "event_id", "participants", returns=ITEM),
    "append_to_file": _act("change", "file_id", returns=ITEM),
    "create_file": _act("change", "filename", returns=ITEM),
    "delete_file": _act("delete", "file_id", returns=ITEM),
    "share_file": _act("send", "file_id", "email", returns=ITEM),
    **dict.fromkeys(
        ("search_files_by_filename", "get_file_by_id", "list_files", "search_files"),
        _read(RECORDS, "drive"),
    ),
    # travel
    "get_user_information": _read(OURS, "profile"),
    **dict.fromkeys(
        (
            "get_all_hotels_in_city", "get_hotels_prices", "get_rating_reviews_for_hotels", "get_hotels_address",
            "get_all_restaurants_in_city", "get_cuisine_type_for_restaurants", "get_restaurants_address",
            "get_rating_reviews_for_restaurants", "get_dietary_restrictions_for_all_restaurants",
            "get_contact_information_for_restaurants", "get_price_for_restaurants", "check_restaurant_opening_hours",
            "get_all_car_rental_companies_in_city", "get_car_types_available", "get_rating_reviews_for_car_rental",
            "get_car_fuel_options", "get_car_rental_address", "get_car_price_per_day", "get_flight_information",
        ),
        _read(THEIRS),
    ),
    "reserve_hotel": _act("pay", "hotel"),
    "reserve_restaurant": _act("pay", "restaurant"),
    "reserve_car_rental": _act("pay", "company"),
    # banking
    **dict.fromkeys(("get_iban", "get_balance", "get_user_info", "get_scheduled_transactions"), _read(OURS, "bank")),
    "get_most_recent_transactions": _read(RECORDS, "bank"),
    "read_file": _read(THEIRS, "files"),
    "send_money": _act("pay", "recipient"),
    "schedule_transaction": _act("pay", "recipient"),
    "update_scheduled_transaction": _act("pay", "id", "recipient"),
    "update_password": _act("account", "password"),
    "update_user_info": _act("account", "first_name", "last_name", "street", "city"),
    # chat and web
    **dict.fromkeys(("get_channels", "get_users_in_channel"), _read(MEMBERS)),
    **dict.fromkeys(("read_channel_messages", "read_inbox"), _read(CHAT, "chat")),
    "send_direct_message": _act("send", "recipient"),
    "send_channel_message": _act("send", "channel"),
    "add_user_to_channel": _act("change", "user", "channel"),
    "invite_user_to_slack": _act("account", "user", "user_email"),
    "remove_user_from_slack": _act("account", "user"),
    "get_webpage": {"effect": "fetch", "targets": ("url",), **THEIRS},
    "post_webpage": _act("send", "url"),
}  # fmt: skip
