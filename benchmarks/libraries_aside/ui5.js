import "@ui5/webcomponents/dist/Assets.js";
import "@ui5/webcomponents-icons/dist/edit.js";
import "@ui5/webcomponents-icons/dist/delete.js";
import "@ui5/webcomponents/dist/Input.js";
import "@ui5/webcomponents/dist/StepInput.js";
import "@ui5/webcomponents/dist/Select.js";
import "@ui5/webcomponents/dist/Option.js";
import "@ui5/webcomponents/dist/MultiComboBox.js";
import "@ui5/webcomponents/dist/MultiComboBoxItem.js";
import "@ui5/webcomponents/dist/DatePicker.js";
import "@ui5/webcomponents/dist/CheckBox.js";
import "@ui5/webcomponents/dist/RadioButton.js";
import "@ui5/webcomponents/dist/Switch.js";
import "@ui5/webcomponents/dist/Slider.js";
import "@ui5/webcomponents/dist/RatingIndicator.js";
import "@ui5/webcomponents/dist/TextArea.js";
import "@ui5/webcomponents/dist/Label.js";
import "@ui5/webcomponents/dist/SegmentedButton.js";
import "@ui5/webcomponents/dist/SegmentedButtonItem.js";
import "@ui5/webcomponents/dist/Button.js";
import "@ui5/webcomponents/dist/Link.js";
import "@ui5/webcomponents/dist/TabContainer.js";
import "@ui5/webcomponents/dist/Tab.js";
import "@ui5/webcomponents/dist/Table.js";
import "@ui5/webcomponents/dist/TableHeaderRow.js";
import "@ui5/webcomponents/dist/TableHeaderCell.js";
import "@ui5/webcomponents/dist/TableRow.js";
import "@ui5/webcomponents/dist/TableCell.js";
import "@ui5/webcomponents/dist/TableSelectionMulti.js";
import "@ui5/webcomponents/dist/Tree.js";
import "@ui5/webcomponents/dist/TreeItem.js";
import "@ui5/webcomponents/dist/Menu.js";
import "@ui5/webcomponents/dist/MenuItem.js";
import "@ui5/webcomponents/dist/Dialog.js";
import "@ui5/webcomponents/dist/Panel.js";

document.getElementById("app").innerHTML = `<ui5-tabcontainer>
<ui5-tab text="Entry" selected><div style="display:grid;grid-template-columns:90px 300px;gap:6px">
<ui5-label for=name required>Name</ui5-label><ui5-input id=name></ui5-input>
<ui5-label for=amount>Amount</ui5-label><ui5-step-input id=amount value=2></ui5-step-input>
<ui5-label for=city>City</ui5-label><ui5-select id=city><ui5-option>Oslo</ui5-option><ui5-option>Rome</ui5-option></ui5-select>
<ui5-label for=tags>Tags</ui5-label><ui5-multi-combobox id=tags><ui5-mcb-item text=red selected></ui5-mcb-item>
<ui5-mcb-item text=blue></ui5-mcb-item></ui5-multi-combobox>
<ui5-label for=day>Day</ui5-label><ui5-date-picker id=day value="May 4, 2026" format-pattern="MMM d, y"></ui5-date-picker>
<ui5-label for=size>Size</ui5-label><ui5-slider id=size value=30 accessible-name=Size></ui5-slider>
<ui5-label for=stars>Stars</ui5-label><ui5-rating-indicator id=stars value=3></ui5-rating-indicator>
<ui5-label for=notes>Notes</ui5-label><ui5-textarea id=notes></ui5-textarea></div>
<ui5-checkbox id=agree text=Agree></ui5-checkbox><ui5-radio-button id=air name=by text=Air></ui5-radio-button>
<ui5-radio-button id=sea name=by text=Sea></ui5-radio-button><ui5-switch id=live accessible-name=Live></ui5-switch>
<ui5-segmented-button><ui5-segmented-button-item id=l selected>Left</ui5-segmented-button-item>
<ui5-segmented-button-item id=m>Middle</ui5-segmented-button-item></ui5-segmented-button>
<ui5-button id=send design=Emphasized>Send</ui5-button><ui5-link id=help href="#">Help</ui5-link></ui5-tab>
<ui5-tab text="More"><ui5-table><ui5-table-selection-multi slot=features></ui5-table-selection-multi><ui5-table-header-row slot=headerRow>
<ui5-table-header-cell>Who</ui5-table-header-cell><ui5-table-header-cell>Do</ui5-table-header-cell></ui5-table-header-row>
${["Ann", "Bob", "Cid"].map((who) => `<ui5-table-row row-key=${who}><ui5-table-cell>${who}</ui5-table-cell><ui5-table-cell>
<ui5-button id=edit-${who} icon=edit tooltip=Edit></ui5-button><ui5-button id=drop-${who} icon=delete tooltip=Delete></ui5-button>
</ui5-table-cell></ui5-table-row>`).join("")}</ui5-table>
<ui5-tree><ui5-tree-item text=Fruit expanded><ui5-tree-item id=pear text=Pear></ui5-tree-item></ui5-tree-item></ui5-tree>
<ui5-panel header-text=Details collapsed>text</ui5-panel>
<ui5-button id=menu>Menu</ui5-button><ui5-menu id=m-menu opener=menu><ui5-menu-item text=Cut></ui5-menu-item><ui5-menu-item text=Copy>
</ui5-menu-item></ui5-menu><ui5-button id=dialog>Dialog</ui5-button><ui5-dialog id=d header-text="Sure?">Really
<ui5-button id=yes slot=footer>Yes</ui5-button><ui5-button id=no slot=footer>No</ui5-button></ui5-dialog></ui5-tab></ui5-tabcontainer>`;
document.getElementById("menu").addEventListener("click", () => { document.getElementById("m-menu").open = true; });
document.getElementById("dialog").addEventListener("click", () => { document.getElementById("d").open = true; });
