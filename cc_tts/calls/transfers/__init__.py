"""Transfers of calls: by REFER to another party, or by a bridge to another call of ours."""
